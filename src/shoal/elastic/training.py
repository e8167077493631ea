"""The training thread's side of the protocol: steps, parts, and what is done when the members change.

Everything here runs on the thread that runs the script's loop: at the loop's turn (`turn`), when
backward of a part ends (`_backward_over`), and around each optimizer's step.
"""

# torch's own types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from shoal import faults
from shoal.elastic import randomness
from shoal.elastic.allreduce.control import Said, Sum
from shoal.elastic.allreduce.groups import Group
from shoal.elastic.allreduce.layout import BUCKET_BYTES
from shoal.elastic.allreduce.reducer import Reducer
from shoal.elastic.allreduce.rollforward import Outcome, Record, decide
from shoal.elastic.errors import ElasticError, Fenced, GroupFailed
from shoal.elastic.joining.donor import Donor
from shoal.elastic.ledger.deal import Part, Step, advance
from shoal.elastic.membership import Membership
from shoal.elastic.state import Packed, digest, pack, unpack
from shoal.elastic.view import Cursor, Member, View
from shoal.elastic.wrapping import Objects

__all__ = ["CHECK_EVERY", "Training"]

CHECK_EVERY = 100
"""Steps between two comparisons of the ranks' parameters."""

LEAVE_SECONDS = 3.0
"""So long a worker that was told to go waits for a view without it; then it goes all the same."""


@dataclass
class _Start:
    """What a step began with, for running it again."""

    random: dict[str, Any]
    buffers: list[torch.Tensor]


class Training:
    """One process's part in the training. `applied` counts the steps that its parameters have taken.

    `membership` and `donor` None: it is alone, and stays so.
    """

    def __init__(
        self,
        membership: Membership | None,
        donor: Donor | None,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        self.membership = membership
        self.donor = donor
        self.objects = Objects(self.may_apply, self._applying, self._optimizer_applied)
        self.applied = 0
        self.committed = 0
        self.committed_cursor = Cursor()
        self.cursor = Cursor()
        self.length = 0
        self.stepped = False
        self.largest: int | None = None
        self.group: Group | None = None
        self.step: Step | None = None
        self.on_step: list[Callable[[], None]] = []
        self.at_boundary: list[Callable[[], None]] = []
        self.waiting: Callable[[bool], object] = lambda waits: None
        self.before_first: Callable[[], bool] = lambda: False
        self._bucket_bytes = bucket_bytes
        self._reducer: Reducer | None = None
        self._part: Part | None = None
        self._reduced: Sum | None = None
        self._may_apply = False
        self._has_state = False
        self._discarded = False
        self._take: Packed | None = None
        self._switch_to = 0
        self._must_join = False
        self._start: _Start | None = None
        self._optimizers_done = 0
        self._ready_said = 0
        self._resync = False
        self._asked_to_leave = 0.0
        self.own_samples = 0

    # what the loop calls

    @property
    def reducer(self) -> Reducer:
        """Of the wrapped parameters.

        Raises:
            ElasticError: nothing has been wrapped.
        """
        if self._reducer is None:
            if not self.objects.models:
                raise ElasticError("call job.wrap(model, optimizer) before job.shards()")
            self._reducer = Reducer(
                self.objects.parameters(),
                self.objects.statistics(),
                self._backward_over,
                self._bucket_bytes,
            )
            self._reducer.rest()
        return self._reducer

    @property
    def rank(self) -> int:
        """In the current view."""
        return self._the_group().rank

    @property
    def size(self) -> int:
        """Of the current view."""
        return self._the_group().size

    @property
    def epoch(self) -> int:
        """Of the current view."""
        return self._the_group().epoch

    @property
    def has_to_rejoin(self) -> bool:
        """Whether it was a member, and has been put out."""
        return self._must_join

    def alone(self) -> None:
        """Train in a group of one."""
        me = Member("alone", 1, "")
        self.group = Group(View(1, "first", (me,)), 0, None, None)

    def begin_step(self, step: Step) -> None:
        """From here on parts are of this step."""
        self.step = step
        self.reducer.begin_step()
        if self.membership is not None:
            buffers = [buffer.clone() for buffer in self.objects.buffers()]
            self._start = _Start(randomness.capture(), buffers)

    def begin_part(self, part: Part, share: float) -> None:
        """The script runs its loop body on this part now."""
        self._part = part
        self._reduced = None
        self._may_apply = False
        self._optimizers_done = 0
        self.stepped = False
        samples = self.own_samples if part.last else 0
        ready = self.membership.ready() if self.membership is not None and part.last else 0
        said = Said(samples, ready, digest=self._digest(part))
        self._ready_said = said.ready
        self.reducer.begin_part(self._the_group(), part.weight, part.last, said, share)
        if part.samples:
            self.largest = max(self.largest or 0, part.samples)

    def deal(self, samples: int) -> None:
        """How many samples of the step are this rank's."""
        self.own_samples = samples

    def end_part(self) -> None:
        """The loop body is over. With a step's last part it has been applied, or is to be run anew.

        Raises:
            ElasticError: the body never called `backward()`.
        """
        part, self._part = self._part, None
        if part is None:
            return
        if not self.reducer.backwards and not self._discarded:
            raise ElasticError(
                "the loop asked for its next batch without backward() on the last one: call it in every "
                "pass (a loss of 0 * output.sum() skips one)"
            )
        self.reducer.rest()
        if self._discarded:
            self._rerun()
        elif part.last:
            self._count_applied()
            self.step = None

    def may_apply(self) -> bool:
        """Whether optimizers act now: the step's last part, and its gradients are right."""
        return self._may_apply

    def settle(self) -> None:
        """Between passes of the loop: take what a recovery brought, and follow changes of the members.

        `step` is None afterwards if the next one is to be dealt.

        Raises:
            Fenced: this process has to join anew.
            SystemExit: it has left.
        """
        membership = self.membership
        if membership is None:
            for each in self.at_boundary if self.step is None else ():
                each()
            return
        if not self._must_join and membership.newer(self._the_group().epoch):
            self.recover()
        if self._must_join:
            raise Fenced
        if self._take is not None:
            self._install()
        if self._discarded:
            self._rerun()
        if self.step is not None:
            return
        if self._resync:
            self._equalise()
        self._serve()
        for each in self.at_boundary:
            each()
        if self._switch_to:
            self._switch()
        elif membership.leaving:
            self._leave()

    def finish(self) -> bool:
        """All steps are over here: whether they are everywhere. If not, `settle` and look again."""
        group = self._the_group()
        if group.size == 1 or self.membership is None:
            self._commit()
            return True
        try:
            seen = group.gather(torch.tensor([self.applied], dtype=torch.int64))
        except GroupFailed:
            self.recover()
            return False
        if any(int(each) != self.applied for each in seen):
            raise ElasticError("ranks ended after different steps: their loops differ")
        self._commit()
        return True

    # becoming a member, and changes of the members

    def enter(self, group: Group, began: float, *, newcomer: bool = False) -> bool:
        """Use this group, after agreeing with its members on a common state. False: it broke."""
        self._use(group)
        if newcomer:
            self._has_state = self._must_join = False
        try:
            outcome = self._agree(group)
        except GroupFailed:
            return False
        if outcome.how == "buckets":
            self._fill()
        else:
            self._discarded = self._part is not None or self.step is not None
            self._may_apply = False
        self._has_state = True
        self._tell_recovered(outcome, began)
        return True

    def recover(self) -> None:
        """The group is broken, or overtaken: wait for the next view, and agree.

        `Fenced` is kept for the next `settle`: inside backward nobody could handle it.
        """
        membership = self._the_membership()
        began = time.monotonic()
        old = self._the_group()
        old.interrupt()
        self.reducer.abandon()
        membership.send({"type": "trouble", "epoch": old.epoch})
        self._switch_to = 0
        if self.donor is not None:
            self.donor.drop()
        epoch = old.epoch
        while True:
            try:
                group = membership.next_group(epoch)
            except Fenced:
                self._must_join = self._discarded = True
                self._may_apply = self._has_state = False
                return
            epoch = group.epoch
            if self.enter(group, began):
                faults.point("elastic.recovered")
                return

    def adopt(self, tree: Any, step: int, cursor: Cursor) -> None:
        """Become this state."""
        self.objects.install(tree["objects"])
        self.applied, self.cursor = step, cursor
        self.committed = max(self.committed, step - 1)
        self.step = None
        self._has_state = True
        self._discarded = self._must_join = False
        self._take = None
        self._part = None
        self._reduced = None
        self.reducer.begin_step()
        self._note_step()

    def follow_to(self, step: int, cursor: Cursor) -> None:
        """A joiner has applied one step more."""
        self.applied, self.cursor = step, cursor
        self.committed = step - 1
        self._note_step()

    def switched_to(self, group: Group) -> None:
        """Take part in this group from the next step on, and say so."""
        self._use(group)
        self._the_membership().insist({
            "type": "switched",
            "epoch": group.epoch,
            "step": self.applied,
            "cursor": self.cursor.to_wire(),
        })  # fmt: skip

    def whole(self) -> dict[str, Any]:
        """All that a joiner, or a rank that is behind, needs."""
        return {
            "objects": self.objects.capture(),
            "applied": self.applied,
            "cursor": (self.cursor.epoch, self.cursor.position),
        }

    def parameters_digest(self) -> int:
        """48 bits over all parameters."""
        return digest([p.data for p in self.reducer.parameters])

    # inside

    def _use(self, group: Group) -> None:
        self.group = group
        if self.membership is not None:
            self.membership.use(group)

    def _backward_over(self) -> None:
        part = self._part
        if part is None or not part.last:
            return
        self.waiting(True)  # from here on a lack of progress is somebody else's
        with torch.no_grad():
            try:
                self._reduced_to(self.reducer.finish())
            except GroupFailed:
                self.recover()
        self.waiting(False)

    def _reduced_to(self, total: Sum) -> None:
        self._reduced = total
        self._may_apply = True
        self._commit()
        if self.step is not None:
            self.reducer.install(total, self.step.samples)
        if total.ready and self._ready_said:
            self._switch_to = self._ready_said
        if total.same is False:
            self._resync = True

    def _commit(self) -> None:
        """Everybody is known to have applied what this rank has."""
        self.committed, self.committed_cursor = self.applied, self.cursor

    def _applying(self, number: int) -> None:
        if self.donor is None or not self.donor.followed:
            return
        optimizer = self.objects.optimizers[number]
        groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
        gradients = [p.grad for g in optimizer.param_groups for p in g["params"]]
        self.donor.update(number, groups, pack(gradients))

    def _optimizer_applied(self, number: int) -> None:
        self._optimizers_done += 1
        if self._optimizers_done == len(self.objects.optimizers):
            self._count_applied()

    def _count_applied(self) -> None:
        """The step counts as applied, once, though an optimizer may have skipped it."""
        if self._reduced is None or self.step is None:
            return
        faults.point("elastic.applied")
        self._reduced = None
        self.applied += 1
        self.cursor = advance(self.step, self.length)
        self._note_step()
        if self.donor is not None and self.donor.followed:
            rest = {
                "buffers": self.objects.buffers(),
                "others": self.objects.capture_others(),
            }
            self.donor.applied(self.applied, self.cursor, pack(rest))
        self.step = None
        self.stepped = True
        self.reducer.begin_step()
        for each in self.on_step:
            each()

    def _note_step(self) -> None:
        if self.membership is not None:
            self.membership.step = self.applied

    def _rerun(self) -> None:
        """The step in hand is void: the next one is dealt anew from the cursor."""
        self._discarded = self._may_apply = False
        self._reduced = None
        if self.step is not None and self._start is not None:
            randomness.restore(self._start.random)
            self._restore_buffers()
        self.step = None
        self.reducer.begin_step()

    def _restore_buffers(self) -> None:
        if self.step is None or self._start is None:
            return
        with torch.no_grad():
            for buffer, old in zip(self.objects.buffers(), self._start.buffers, strict=True):
                buffer.copy_(old)

    def _agree(self, group: Group) -> Outcome:
        """Tell what this rank has, hear what the others have, and move what somebody lacks.

        Raises:
            GroupFailed: another loss.
        """
        first = group.view.kind == "first"
        buffers = self.reducer.buffers()
        finished = list(self.reducer.finished)
        finished += [False] * (len(buffers) - len(finished))
        applied = self.applied if first or self._has_state else -1
        shape = digest([torch.tensor([p.numel() for p in self.reducer.parameters])])
        mine = torch.tensor([applied, shape, *map(int, finished)], dtype=torch.int64)
        counts = group.gather(torch.tensor([len(mine), shape], dtype=torch.int64))
        if any(not torch.equal(each, counts[group.rank]) for each in counts):
            raise ElasticError("the ranks train different models: wrap the same model everywhere")
        records = [
            Record(int(each[0]), tuple(bool(x) for x in each[2:].tolist()))
            for each in group.gather(mine)
        ]
        outcome = decide(records)
        if first and group.size > 1 and outcome.how != "state":
            outcome = Outcome("state", outcome.applied, outcome.donor)
        if outcome.how == "state":
            self._share_state(group, outcome, everybody=first, records=records)
        for bucket, holder in outcome.copies:
            group.broadcast(buffers[bucket], holder)
        return outcome

    def _begin_from_checkpoint(self, group: Group) -> Outcome:
        """Whoever had a state is gone. It is taken up from a checkpoint, or the job fails: never step
        0."""
        if not self.before_first():
            raise ElasticError(
                "every worker that had the training's state is gone, and there is no checkpoint"
            )
        self._has_state = True
        return self._agree(group)

    def _share_state(
        self, group: Group, outcome: Outcome, *, everybody: bool, records: list[Record]
    ) -> None:
        gives = group.rank == outcome.donor
        if gives:
            self._restore_buffers()
        packed = pack(self.whole()) if gives else None
        size = torch.zeros(2, dtype=torch.int64)
        if packed is not None:
            size = torch.tensor([len(packed.meta), packed.flat.numel()], dtype=torch.int64)
        group.broadcast(size, outcome.donor)
        meta = torch.empty(int(size[0]), dtype=torch.uint8)
        flat = torch.empty(int(size[1]), dtype=torch.uint8)
        if packed is not None:
            meta = torch.frombuffer(bytearray(packed.meta), dtype=torch.uint8)
            flat = packed.flat
        group.broadcast(meta, outcome.donor)
        group.broadcast(flat, outcome.donor)
        behind = everybody or records[group.rank].applied != outcome.applied
        if not gives and behind:
            self._take = Packed(bytes(meta.numpy()), flat)  # pyright: ignore

    def _fill(self) -> None:
        """Every bucket is there: backward ends as if nothing had happened."""
        self.reducer.complete()
        if self._reduced is None:
            self._reduced_to(self.reducer.understood())
        self._switch_to = 0  # what was planned before the loss is void

    def _install(self) -> None:
        packed, self._take = self._take, None
        if packed is None:
            return
        tree = unpack(packed)
        self._rerun()
        self.adopt(tree, int(tree["applied"]), Cursor(*tree["cursor"]))
        faults.point("elastic.installed")

    def _leave(self) -> None:
        """It wants to go: asked for until the next view is without it; alone it goes at once."""
        membership = self._the_membership()
        if self._asked_to_leave == 0.0:
            self._asked_to_leave = time.monotonic()
            membership.leave()
        waited = time.monotonic() - self._asked_to_leave
        if self.size == 1 or waited > LEAVE_SECONDS:
            self._go()

    def _go(self) -> None:
        self._the_membership().send({"type": "left", "step": self.applied})
        raise SystemExit(0)

    def _switch(self) -> None:
        membership = self._the_membership()
        epoch, self._switch_to = self._switch_to, 0
        if self.donor is not None:
            self.donor.switched(epoch, self.applied)
        if not membership.includes_me(membership.plans.get(epoch)):
            self._go()
        group = membership.groups.take(epoch, 0.0)
        if group is None:  # a loss has made it void meanwhile
            self.recover()
            return
        self.switched_to(group)
        faults.point("elastic.switched")

    def _serve(self) -> None:
        if self.donor is not None and self.donor.wanted:
            packed = pack(self.whole())
            self.donor.snapshot(packed, self.applied, self.cursor, self.parameters_digest())

    def _digest(self, part: Part) -> int | None:
        due = part.last and self.size > 1 and self.applied % CHECK_EVERY == CHECK_EVERY - 1
        return self.parameters_digest() if due else None

    def _equalise(self) -> None:
        """Some rank's parameters are not what they should be: it takes those of the majority."""
        self._resync = False
        group = self._the_group()
        mine = self.parameters_digest()
        try:
            seen = [int(each) for each in group.gather(torch.tensor([mine], dtype=torch.int64))]
            donor = seen.index(max(seen, key=lambda each: (seen.count(each), -seen.index(each))))
            records = [Record(int(each == seen[donor]), ()) for each in seen]
            self._share_state(group, Outcome("state", 1, donor), everybody=False, records=records)
        except GroupFailed:
            self._resync = True
            self.recover()
            return
        if self._take is not None:
            self._the_membership().send({"type": "diverged", "step": self.applied})
            self._install()

    def _tell_recovered(self, outcome: Outcome, began: float) -> None:
        self._the_membership().insist({
            "type": "recovered",
            "epoch": self._the_group().epoch,
            "step": self.applied,
            "cursor": self.cursor.to_wire(),
            "seconds": round(time.monotonic() - began, 6),
            "how": outcome.how,
        })  # fmt: skip

    def _the_group(self) -> Group:
        if self.group is None:
            raise ElasticError("the training has not begun: iterate over job.shards()")
        return self.group

    def _the_membership(self) -> Membership:
        if self.membership is None:
            raise ElasticError("a process alone has nobody to agree with")
        return self.membership
