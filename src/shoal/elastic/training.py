"""The training thread's side of the protocol: steps and their parts, as the script's loop makes them.

Everything here runs on the thread that runs the script's loop: at the loop's turn (`settle`), when
backward of a part ends (`_backward_over`), and around each optimizer's step.
"""

# torch's own types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import torch

from shoal import faults
from shoal.elastic.allreduce.control import Said, Sum
from shoal.elastic.allreduce.groups import Group
from shoal.elastic.allreduce.reducer import Reducer
from shoal.elastic.boundary import Boundary
from shoal.elastic.errors import ElasticError, Fenced, GroupFailed
from shoal.elastic.hand import Hand
from shoal.elastic.joining.donor import Donor
from shoal.elastic.ledger.deal import Part, Step, advance, share_of
from shoal.elastic.local import Local, alone
from shoal.elastic.membership import Membership
from shoal.elastic.optim.policy import scaled
from shoal.elastic.recovery import Recovery
from shoal.elastic.state import digest
from shoal.elastic.terms import CommConfig, Terms
from shoal.elastic.view import Cursor
from shoal.elastic.wrapping import Objects

__all__ = ["CHECK_EVERY", "Training"]

CHECK_EVERY = 100
"""Steps between two comparisons of the ranks' parameters."""


class Training:
    """One process's part in the training. `applied` counts the steps that its parameters have taken.

    `membership` and `donor` None: it is alone, and stays so.
    """

    def __init__(
        self,
        membership: Membership | None,
        donor: Donor | None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`say` prints one line for the user."""
        self.objects = Objects(self.may_apply, self._applying, self._optimizer_applied)
        self.ways = CommConfig()
        self.hand = Hand()
        self.boundary = Boundary(self, membership, donor)
        self.applied = 0
        self.committed = 0
        self.committed_cursor = Cursor()
        self.cursor = Cursor()
        self.terms: Terms | None = None
        self.loop_elsewhere = 0
        self.stepped = False
        self.largest: int | None = None
        self.group: Group | None = None
        self.on_step: list[Callable[[], None]] = []
        self.waiting: Callable[[bool], object] = lambda waits: None
        self.before_first: Callable[[], bool] = lambda: False
        self._membership = membership
        self._recovery = Recovery(self, membership) if membership is not None else None
        self._local: Local | None = None
        self._learned: tuple[int, int] | None = None
        self._say = say
        self._reducer: Reducer | None = None

    # what it is made of

    @property
    def reducer(self) -> Reducer:
        """Of the wrapped parameters.

        Raises:
            ElasticError: nothing has been wrapped.
        """
        if self._reducer is None:
            if not self.objects.models:
                raise ElasticError("call job.wrap(model, optimizer) before job.shards()")
            self.ways.settled = True
            self._reducer = Reducer(
                self.objects.parameters(),
                self.objects.statistics(),
                self._backward_over,
                plan=self.ways.plan,
            )
            self._reducer.rest()
            if self.ways.local is not None:
                self._local = Local(self.ways.local, self.objects)
        return self._reducer

    @property
    def recovery(self) -> Recovery:
        """Of a process that is not alone."""
        if self._recovery is None:
            raise ElasticError("a process alone has no peers to agree with")
        return self._recovery

    @property
    def current_group(self) -> Group:
        """The group in use.

        Raises:
            ElasticError: there is none yet.
        """
        if self.group is None:
            raise ElasticError("the training has not begun: iterate over job.shards()")
        return self.group

    @property
    def rank(self) -> int:
        """In the current view."""
        return self.current_group.rank

    @property
    def size(self) -> int:
        """Of the current view."""
        return self.current_group.size

    @property
    def epoch(self) -> int:
        """Of the current view."""
        return self.current_group.epoch

    @property
    def has_to_rejoin(self) -> bool:
        """Whether it was a member, and has been put out."""
        return self._recovery is not None and self._recovery.must_join

    @property
    def begun(self) -> bool:
        """Whether what was wrapped is settled."""
        return self._reducer is not None

    @property
    def given(self) -> Terms:
        """What the loop in hand was given."""
        if self.terms is None:
            raise ElasticError("the training has not begun: iterate over job.shards()")
        return self.terms

    @property
    def behind(self) -> bool:
        """Whether the others have ended the loop in hand, and are in a later one."""
        return self.loop_elsewhere > self.given.loop

    @property
    def is_local(self) -> bool:
        """Whether workers train alone between two agreements."""
        return self.ways.local is not None

    @property
    def finished(self) -> tuple[bool, ...]:
        """Which buckets of the step in hand hold the sum over all ranks."""
        hand = self.hand
        if hand.total is not None:  # what the script has had in its hands may be no sum any more
            return ()
        return () if self.is_local else self.reducer.finished

    # what the loop calls

    def begin_loop(self, terms: Terms, first_epoch: int) -> None:
        """A loop over `job.shards` begins; its samples are those from `first_epoch` on."""
        self.terms = terms
        if self.cursor.epoch >= first_epoch:
            return
        # the loop before was left early: what joiners follow does not say so
        self.boundary.forget()
        self._stand_at(self.applied, Cursor(first_epoch, 0))
        self._tell_step()

    def break_off(self) -> None:
        """The script has left its loop before the end: an unfinished step is void."""
        hand = self.hand
        if hand.part is not None and hand.part.last and self.reducer.backwards and not hand.void:
            self.end_part(left=True)
        else:
            hand.part = None
            self.reducer.rest()
            self.rerun()
        if self.size == 1 and not self.is_local:
            self._commit()

    def alone(self) -> None:
        """Train in a group of one."""
        self.group = alone()

    def share(self, step: Step) -> tuple[int, int]:
        """Positions `[first, end)` dealt to this rank."""
        return share_of(step, self.rank, self.size)

    def begin_step(self, step: Step, own_samples: int) -> None:
        """From here on parts are of this step; `own_samples` of its samples are this rank's."""
        self.objects.check_frozen()
        self.reducer.begin_step()
        self.hand.take(step, self.objects.buffers() if self._membership is not None else None)
        self.hand.own_samples = own_samples

    def begin_part(self, part: Part, counts: float | None = None) -> None:
        """The script runs its loop body on this part now. `counts`: by how much its samples count
        together; None: each by one."""
        hand = self.hand
        hand.begin(part)
        self.objects.begin_pass()
        self.stepped = False
        weight = part.weight
        if counts is not None:
            weight *= counts / max(1, part.samples)
            hand.own_weight += counts
        own = hand.own_samples if part.last else 0
        said = Said(own, weight=None if counts is None else hand.own_weight)
        if self._local is not None:
            self.reducer.begin_part(self._local.group, weight, part.last, said, 1.0)
        else:
            ready = self._ready() if part.last else 0
            said = replace(said, ready=ready, digest=self._digest(part), place=self._place())
            share = hand.own_samples / max(1, hand.planned)
            self.reducer.begin_part(self.current_group, weight, part.last, said, share)
        if part.samples:
            self.largest = max(self.largest or 0, part.samples)

    def end_part(self, *, left: bool = False) -> None:
        """The loop body is over. With a step's last part it has been applied, or is to be run anew.

        `left`: the script has left its loop, and may have meant to drop the gradients.

        Raises:
            ElasticError: the body never called `backward()`, or used its gradients for nothing.
        """
        hand = self.hand
        part, hand.part = hand.part, None
        if part is None:
            return
        if not self.reducer.backwards and not hand.void:
            raise ElasticError(
                "the loop asked for its next batch without backward() on the last one: call it in every "
                "pass (a loss of 0 * output.sum() skips one)"
            )
        self.reducer.rest()
        if hand.void:
            self.rerun()
        elif part.last:
            if not left:
                self.objects.check_pass()
            self._count_applied()
            if self.boundary.giving is not None:
                self.boundary.giving.stepped()
            hand.step = None

    def may_apply(self) -> bool:
        """Whether optimizers act now: the step's last part, and its gradients are right."""
        return self.hand.may_apply

    def settle(self) -> None:
        """Between passes of the loop: take what a recovery brought, and follow changes of the members.

        `hand.step` is None afterwards if the next one is to be dealt.

        Raises:
            Fenced: this process has to join anew.
            SystemExit: it has left.
        """
        if self._membership is not None and self._recovery is not None:
            if not self.has_to_rejoin and self._membership.newer(self.epoch):
                self.recover()
            if self.has_to_rejoin:
                raise Fenced
            self._recovery.install()
            if self.hand.void:
                self.rerun()
        if self.hand.step is None and self._members_may_change():
            self.boundary.pass_over()

    def finish(self) -> bool:
        """All steps are over here: whether they are everywhere. If not, `settle` and look again."""
        group = self.current_group
        try:
            if self._local is not None and self._local.flush(group):
                self._meet(self._local)
            if group.size == 1 or self.behind:
                seen = []
            else:
                seen = group.gather(torch.tensor([self.applied], dtype=torch.int64))
        except GroupFailed:
            self.recover()
            return False
        if any(int(each) != self.applied for each in seen):
            raise ElasticError("ranks ended after different steps: their loops differ")
        self._commit()
        return True

    # becoming a member, and changes of the members

    def recover(self) -> None:
        """The group is broken, or overtaken."""
        self.recovery.run()

    def use(self, group: Group) -> None:
        """Sums are made in this group from now on."""
        self.group = group
        if self._membership is not None:
            self._membership.use(group)

    def switched_to(self, group: Group) -> None:
        """Take part in this group from the next step on, and say so."""
        self.use(group)
        if self._membership is not None:
            self._membership.insist({
                "type": "switched",
                "epoch": group.epoch,
                "step": self.applied,
                "cursor": self.cursor.to_wire(),
            })  # fmt: skip
        if self.is_local:  # joiners did not follow: they take what they lack now
            try:
                self.recovery.level(group)
            except GroupFailed:
                self.recover()

    def roll_back(self) -> None:
        """With local steps: what was not agreed when the group broke is learned again."""
        if self._local is not None:
            self.hand.drop()
            self._learned = None
            self.reducer.begin_step()
            self._stand_at(*self._local.restore())
            self._tell_step()

    def fill(self) -> None:
        """Every bucket of the step in hand is there: backward ends as if nothing had happened."""
        self.reducer.complete()
        if self.hand.total is None:
            self._reduced_to(self.reducer.understood())
        self.boundary.unplan()

    def rerun(self) -> None:
        """The step in hand is void: the next one is dealt anew from the cursor."""
        self.hand.again(self.objects.buffers())
        self.reducer.begin_step()

    def adopt(self, tree: Any, step: int, cursor: Cursor) -> None:
        """Become this state."""
        if self.boundary.giving is not None:
            self.boundary.giving.cancel()
        self.objects.install(tree["objects"])
        self.heard_of_loop(int(tree["terms"]["loop"]))
        self._stand_at(step, cursor)
        self._tell_step()
        self.committed = max(self.committed, step - (self._local is None))
        if self._local is not None:
            self._learned = None
            self._local.adopt(tree.get("local"), step, cursor)
        if self._recovery is not None:
            self._recovery.adopted()
        self.hand.drop()
        self.reducer.begin_step()
        self.reducer.owe_nothing()

    def heard_of_loop(self, loop: int) -> None:
        """A worker is in that loop of the script, so those before it are over."""
        self.loop_elsewhere = max(self.loop_elsewhere, loop)

    def follow_to(self, step: int, cursor: Cursor) -> None:
        """A joiner has applied one step more."""
        self._stand_at(step, cursor)
        self._tell_step()
        self.committed = step - 1

    def whole(self) -> dict[str, Any]:
        """All that a joiner, or a rank that is behind, needs."""
        return {
            "objects": self.objects.capture(),
            "applied": self.applied,
            "cursor": (self.cursor.epoch, self.cursor.position),
            "terms": self.given.to_wire(),
            "local": self._local.state() if self._local is not None else None,
        }

    def parameters_digest(self) -> int:
        """48 bits over all parameters, as the workers agreed on them."""
        if self._local is not None:
            return self._local.digest()
        return digest([p.data for p in self.reducer.parameters])

    # inside

    def _backward_over(self) -> None:
        part = self.hand.part
        if part is None or not part.last:
            return
        self.waiting(True)  # from here on a lack of progress is another's
        with torch.no_grad():
            try:
                self._reduced_to(self.reducer.finish())
            except GroupFailed:
                self.recover()
        self.waiting(False)

    def _place(self) -> int:
        """16 bits over where this rank is."""
        return hash((self.applied, self.cursor.epoch, self.cursor.position)) & 0xFFFF

    def _reduced_to(self, total: Sum) -> None:
        self.hand.agreed(total)
        if self.hand.step is not None:
            self.reducer.install(total, self.hand.planned)
        if self._local is None:
            self._heard(total, self.reducer.said_ready)

    def _heard(self, total: Sum, ready: int) -> None:
        """What all have said, this rank having said that it had built the group of epoch `ready`."""
        if not total.level:
            raise ElasticError(
                "the workers are not at the same step: one has left its loop over job.shards() before "
                "others; leave it on all of them alike (job.allreduce shares what one has seen)"
            )
        self._commit()
        self.boundary.heard(total, ready)

    def _members_may_change(self) -> bool:
        """Whether they may at this step boundary. With local steps, what is due is exchanged first."""
        local, learned = self._local, self._learned
        if local is None:
            return True
        self._learned = None
        local.begin(self.applied, self.cursor)
        if learned is not None:
            try:
                if local.stepped(*learned, self.current_group):
                    self._meet(local)
            except GroupFailed:
                self.recover()
                return False
        if not local.meeting:
            self.boundary.notice()
        return local.meeting

    def _meet(self, local: Local) -> None:
        """
        Raises:
            GroupFailed: it broke.
        """
        ready = self._ready()
        total = local.meet(ready, self.applied, self.cursor, self.current_group)
        self._tell_step()
        self._heard(total, ready)

    def _ready(self) -> int:
        return self._membership.ready() if self._membership is not None else 0

    def _commit(self) -> None:
        """Everybody is known to have applied what this rank has."""
        self.committed, self.committed_cursor = self.applied, self.cursor

    @contextlib.contextmanager
    def _applying(self, number: int) -> Generator[None]:
        scaling, giving = self.ways.scaling, self.boundary.giving
        factor = scaling.factor(self.applied) if scaling is not None else 1.0
        with scaled(self.objects.optimizers[number], factor):
            if giving is not None:
                giving.applying(number)
            yield

    def _optimizer_applied(self, number: int) -> None:
        self.hand.optimizers_done += 1
        if self.hand.optimizers_done == len(self.objects.optimizers):
            self._count_applied()

    def _count_applied(self) -> None:
        """The step counts as applied, once, though an optimizer may have skipped it."""
        hand = self.hand
        if hand.total is None or hand.step is None:
            return
        faults.point("elastic.applied")
        self._learned = (hand.own_samples, hand.planned)
        self._stand_at(self.applied + 1, advance(hand.step, self.given.samples))
        if self._local is None:
            self._tell_step()
        hand.total = hand.step = None
        self.stepped = True
        self.reducer.begin_step()
        for each in self.on_step:
            each()

    def _stand_at(self, step: int, cursor: Cursor) -> None:
        self.applied, self.cursor = step, cursor

    def _tell_step(self) -> None:
        """For the coordinator: this step is not taken back."""
        if self._membership is not None:
            self._membership.step = self.applied

    def _digest(self, part: Part) -> int | None:
        due = part.last and self.size > 1 and self.applied % CHECK_EVERY == CHECK_EVERY - 1
        return self.parameters_digest() if due else None
