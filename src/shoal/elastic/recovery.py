"""After a loss: wait for the next view, exchange what each rank has, and move what some lack.

The same exchange makes a first view level, and brings a process in that was counted on. What a rank
takes from a peer is installed when its loop asks for the next batch: the body in between has to end.
"""

# torch's own types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from shoal import faults
from shoal.elastic.allreduce.rollforward import Outcome, Record, decide
from shoal.elastic.errors import ElasticError, Fenced, GroupFailed
from shoal.elastic.state import Packed, pack, unpack
from shoal.elastic.view import Cursor

if TYPE_CHECKING:
    from shoal.elastic.allreduce.groups import Group
    from shoal.elastic.membership import Membership
    from shoal.elastic.training import Training

__all__ = ["Recovery"]


class Recovery:
    """Of one process. `has_state`: it may give its state to others. `must_join`: it was a member, and
    has been put out."""

    def __init__(self, training: Training, membership: Membership) -> None:
        self.has_state = False
        self.must_join = False
        self._training = training
        self._membership = membership
        self._taken: Packed | None = None

    def run(self) -> None:
        """The group is broken, or overtaken: wait for the next view, and agree.

        A `Fenced` is kept for the loop's next turn: inside backward it could not be handled.
        """
        training, membership = self._training, self._membership
        began = time.monotonic()
        old = training.current_group
        old.interrupt()
        training.reducer.abandon()
        training.roll_back()
        membership.waits(True)
        membership.broken(old.epoch)
        training.boundary.forget()
        epoch = old.epoch
        while True:
            try:
                group = membership.next_group(epoch)
            except Fenced:
                training.hand.lose()
                training.hand.void = True
                self.must_join, self.has_state = True, False
                membership.waits(False)
                return
            epoch = group.epoch
            membership.waits(True)
            if self.enter(group, began):
                membership.waits(False)
                faults.point("elastic.recovered")
                return

    def enter(self, group: Group, began: float, *, newcomer: bool = False) -> bool:
        """Use this group, after agreeing with its members on a common state. False: it broke."""
        training = self._training
        training.use(group)
        if newcomer:
            self.has_state = self.must_join = False
        try:
            outcome = self._agree(group)
        except GroupFailed:
            self._membership.broken(group.epoch)
            return False
        if outcome.how == "buckets":
            training.fill()
        else:
            training.hand.lose()
        self.has_state = True
        self._membership.insist({
            "type": "recovered",
            "epoch": group.epoch,
            "step": training.applied,
            "cursor": training.cursor.to_wire(),
            "seconds": round(time.monotonic() - began, 6),
            "how": outcome.how,
        })  # fmt: skip
        return True

    def level(self, group: Group) -> None:
        """In a group that was switched to: a rank that is behind takes the state of one that is not.

        Raises:
            GroupFailed: it broke.
        """
        self._agree(group)

    def adopted(self) -> None:
        """The process has taken the state of another."""
        self._taken = None
        self.has_state, self.must_join = True, False

    def install(self) -> bool:
        """Become what was taken from a peer; False if nothing was."""
        packed, self._taken = self._taken, None
        if packed is None:
            return False
        tree = unpack(packed)
        self._training.rerun()
        self._training.adopt(tree, int(tree["applied"]), Cursor(*tree["cursor"]))
        faults.point("elastic.installed")
        return True

    def equalise(self, group: Group, mine: int) -> bool:
        """Ranks whose digest of the parameters differs take the state of the majority: whether this one
        does, with `install`.

        Raises:
            GroupFailed: it is to be done again.
        """
        seen = [int(each) for each in group.gather(torch.tensor([mine], dtype=torch.int64))]
        donor = seen.index(max(seen, key=lambda each: (seen.count(each), -seen.index(each))))
        level = [each == seen[donor] for each in seen]
        self._share_state(group, donor, level)
        return self._taken is not None

    def _agree(self, group: Group) -> Outcome:
        """
        Raises:
            GroupFailed: another loss.
        """
        training = self._training
        first = group.view.kind == "first"
        finished = training.finished
        applied = training.applied if first or self.has_state else -1
        self._compare_terms(group)
        heads = group.gather(torch.tensor([applied, len(finished)], dtype=torch.int64))
        flags = torch.zeros(1 + max(int(each[1]) for each in heads), dtype=torch.int64)
        flags[: len(finished)] = torch.tensor(finished)
        records = [
            Record(int(head[0]), tuple(bool(x) for x in row[: int(head[1])].tolist()))
            for head, row in zip(heads, group.gather(flags), strict=True)
        ]
        if all(record.applied < 0 for record in records):
            return self._begin_from_checkpoint(group)
        outcome = decide(records)
        if first and group.size > 1 and outcome.how != "state":
            outcome = Outcome("state", outcome.applied, outcome.donor)
        if outcome.how == "state":
            level = [record.applied == outcome.applied and not first for record in records]
            self._share_state(group, outcome.donor, level)
        for bucket, holder in outcome.copies:
            group.broadcast(training.reducer.buffers()[bucket], holder)
        return outcome

    def _compare_terms(self, group: Group) -> None:
        """A rank that was given something else than the oldest member ends; the others wait for a view
        without it.

        Raises:
            ElasticError: it is this one.
            GroupFailed: it is another.
        """
        terms = self._training.given
        said = torch.tensor([terms.loop, *terms.digests()], dtype=torch.int64)
        heard = group.gather(said)
        for each in heard:
            self._training.heard_of_loop(int(each[0]))
        if all(_alike(each, heard[0]) for each in heard):
            return
        text = json.dumps(terms.to_wire()).encode()
        size = torch.tensor([len(text)], dtype=torch.int64)
        group.broadcast(size, 0)
        oldest = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        if group.rank != 0:
            oldest = torch.empty(int(size[0]), dtype=torch.uint8)
        group.broadcast(oldest, 0)
        terms.check(json.loads(bytes(oldest.tolist())))
        group.gather(said)
        raise GroupFailed("a worker was given something else")

    def _begin_from_checkpoint(self, group: Group) -> Outcome:
        """Every rank with a state is gone: a checkpoint is taken up, or the job fails. Never step 0."""
        self.has_state = self._training.before_first()
        mine = torch.tensor([int(self.has_state)], dtype=torch.int64)
        if not any(int(each) for each in group.gather(mine)):
            raise ElasticError(
                "every worker that had the training's state is gone, and there is no checkpoint: give "
                "elastic.init(checkpoint=...) a folder, and start the job again"
            )
        return self._agree(group)

    def _share_state(self, group: Group, donor: int, level: Sequence[bool]) -> None:
        """`level`: which ranks need nothing."""
        gives = group.rank == donor
        if gives:
            self._training.hand.rewind(self._training.objects.buffers())
        packed = pack(self._training.whole()) if gives else None
        size = torch.zeros(2, dtype=torch.int64)
        if packed is not None:
            size = torch.tensor([len(packed.meta), packed.flat.numel()], dtype=torch.int64)
        group.broadcast(size, donor)
        meta = torch.empty(int(size[0]), dtype=torch.uint8)
        flat = torch.empty(int(size[1]), dtype=torch.uint8)
        if packed is not None:
            meta = torch.frombuffer(bytearray(packed.meta), dtype=torch.uint8)
            flat = packed.flat
        group.broadcast(meta, donor)
        group.broadcast(flat, donor)
        if not gives and not level[group.rank]:
            self._taken = Packed(bytes(meta.numpy()), flat)  # pyright: ignore


def _alike(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Loops that differ were given what they were given; the models are the same in all."""
    return bool(mine[1] == theirs[1]) and bool(mine[0] != theirs[0] or mine[2] == theirs[2])
