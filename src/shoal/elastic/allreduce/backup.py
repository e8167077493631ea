"""Backup workers: a rank that is late has a stand-in, which adds zeros to the sums in its place.

Every rank tells rank 0 when its gradients are ready, and rank 0 tells all who is in the step. A rank
that is not has a thread that takes part in the same sums with zeros, and keeps what comes out, until
the training thread is there and takes it as its own. So all ranks apply the same sums, one after
another, and who is late is some steps behind, never elsewhere. The messages go over the group itself,
so that they end with it.
"""

# torch's own types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import functools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from shoal.elastic import threads
from shoal.elastic.allreduce.control import Said
from shoal.elastic.allreduce.group import Group, Pending
from shoal.elastic.allreduce.votes import Go, Tally
from shoal.elastic.errors import GroupFailed

__all__ = ["AHEAD", "Backup", "Result"]

AHEAD = 4
"""So many sums are kept for a rank that is late: then the others wait for it."""

_LOOK_SECONDS = 0.2
_LEADER = 0
_HELD = 64
"""Messages to each peer that are held: an older one has arrived, since no step has its sums before every
rank has heard the decision."""


@dataclass(frozen=True)
class Result:
    """The sums of one step, flat, as the buckets are; `said`: what was said in this rank's place."""

    sums: Sequence[torch.Tensor]
    said: Said


class Backup:
    """Of one rank, in one group; all calls come from the training thread. Its threads end with the
    group."""

    def __init__(
        self,
        group: Group,
        needed: int,
        empty: Callable[[Said], Sequence[torch.Tensor]],
        ready: Callable[[], int],
        device: torch.device,
    ) -> None:
        """`empty` makes buckets of zeros, on `device`, that say this; `ready` is the epoch whose group
        is built here. Both are called by another thread."""
        self._group = group
        self._empty = empty
        self._ready = ready
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._tally = Tally(group.size, needed)
        self._news = threading.Condition()
        self._decided: dict[int, Go] = {}
        self._results: dict[int, Result] = {}
        self._sending: deque[Pending] = deque(maxlen=_HELD * group.size)
        self._step = self._next = 0
        self._deaf = False
        self._over = False
        for peer in range(1, group.size) if group.rank == _LEADER else [_LEADER]:
            self._thread(functools.partial(self._listen, peer), f"votes-{peer}")
        self._thread(self._stand_in, "stand-in")

    @property
    def group(self) -> Group:
        """That it belongs to."""
        return self._group

    @property
    def late(self) -> bool:
        """Whether the next step has been decided, and without this rank."""
        with self._news:
            go = self._decided.get(self._step)
            return go is not None and not go.ranks[self._group.rank]

    @property
    def kept(self) -> bool:
        """Whether the sums of the next step are here already."""
        with self._news:
            return self._step in self._results

    def meet(self, place: int) -> Result | None:
        """This rank's gradients are there; return once it is decided who is in the step. None: this rank
        is, and sends its buckets now. Else what the others made of it.

        Raises:
            GroupFailed: it will not be decided, or the sums will never come.
        """
        step = self._step
        with self._news:
            known = step in self._decided
        if not known:
            self._say_ready(step, place)
        with self._news:
            while step not in self._results:
                go = self._decided.get(step)
                if go is not None and go.ranks[self._group.rank]:
                    return None
                # peers that have switched hang up: what they decided before holds
                if self._over or (go is None and (self._deaf or self._group.failed)):
                    raise GroupFailed(f"the group of epoch {self._group.epoch} is broken")
                self._news.wait(_LOOK_SECONDS)
            return self._results[step]

    def advance(self) -> None:
        """The step has its sums here: the next one begins."""
        with self._news:
            self._decided.pop(self._step, None)
            self._results.pop(self._step, None)
            self._step += 1
            self._news.notify_all()

    def close(self) -> None:
        """What is kept is void, and no stand-in begins anything more."""
        with self._news:
            self._over = True
            self._results.clear()
            self._news.notify_all()

    def _thread(self, run: Callable[[], None], name: str) -> None:
        threads.start(run, f"shoal-{name}-{self._group.epoch}")

    def _say_ready(self, step: int, place: int) -> None:
        if self._group.rank == _LEADER:
            self._count(_LEADER, step, place)
        else:
            self._send([step, place], _LEADER)

    def _listen(self, peer: int) -> None:
        """On rank 0 to one that is ready, elsewhere to what rank 0 has decided."""
        leads = self._group.rank == _LEADER
        numbers = torch.zeros(2 if leads else 2 + self._group.size, dtype=torch.int64)
        try:
            with contextlib.suppress(GroupFailed):  # the training thread meets the same, and acts on it
                while True:
                    self._group.receive(numbers, peer)
                    if leads:
                        self._count(peer, int(numbers[0]), int(numbers[1]))
                    else:
                        self._note(Go.from_numbers(numbers.tolist()))
        finally:
            with self._news:
                self._deaf = True
                self._news.notify_all()

    def _count(self, rank: int, step: int, place: int) -> None:
        with self._news:
            go = self._tally.hear(rank, step, place)
        if go is None:
            return
        self._note(go)
        for peer in range(1, self._group.size):
            self._send(go.to_numbers(), peer)

    def _send(self, numbers: list[int], peer: int) -> None:
        """Nobody waits for it to arrive: on a connection that breaks meanwhile that can take forever."""
        sending = self._group.send(torch.tensor(numbers), peer)
        with self._news:
            self._sending.append(sending)

    def _note(self, go: Go) -> None:
        with self._news:
            self._decided[go.step] = go
            self._news.notify_all()

    def _stand_in(self) -> None:
        try:
            # on a stream of its own: it is not to wait for what the training thread computes
            aside = contextlib.nullcontext() if self._stream is None else torch.cuda.stream(self._stream)
            # the training thread meets a failure too: it waits for the end of this
            with aside, contextlib.suppress(GroupFailed):
                self._stand_in_for_each()
        finally:
            with self._news:
                self._over = True
                self._news.notify_all()

    def _stand_in_for_each(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._over or self._deaf or self._may_stand_in())
                if self._over or not self._may_stand_in():
                    return
                go = self._decided.get(self._next)
                self._next += 1
            if go is not None and not go.ranks[self._group.rank]:
                self._add_zeros(go)

    def _may_stand_in(self) -> bool:
        """Whether it is known what is to be done next, and there is room for what comes out."""
        return self._next < self._step or (self._next in self._decided and len(self._results) < AHEAD)

    def _add_zeros(self, go: Go) -> None:
        said = Said(0, self._ready(), place=go.place)
        sums = self._empty(said)
        for pending in [self._group.sum(each) for each in sums]:
            self._group.wait(pending)
        if self._stream is not None:
            self._stream.synchronize()
        with self._news:
            if not self._over:
                self._results[go.step] = Result(sums, said)
                self._news.notify_all()
