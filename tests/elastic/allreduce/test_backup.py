"""A rank that is late gets the sums that others made, with nothing of its own in them."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from shoal.elastic.allreduce.backup import AHEAD
from shoal.elastic.allreduce.control import Said
from shoal.elastic.allreduce.group import Group
from shoal.elastic.allreduce.reducer import Enough, Reducer
from shoal.elastic.codecs.tuner import Plan
from tests.elastic.allreduce.team import Rank, groups, together

SIZE, EACH = 3, 4
PLANNED = SIZE * EACH
_SECONDS = 20.0


class Worker(Rank):
    """One of a team that waits for two only. `ready` is what it would say it has built."""

    def __init__(self, dtype: torch.dtype, averaged: bool = False):
        torch.manual_seed(3)
        model = torch.nn.Linear(5, 2).to(dtype)
        self.statistics = [torch.zeros(2)] if averaged else []
        super().__init__(model, Plan(), self.statistics)
        self.reducer.close()
        enough = Enough(2, lambda: 9)
        self.reducer = Reducer(self.parameters, self.statistics, self._ended, plan=Plan(), enough=enough)
        self.gradients: list[torch.Tensor] = []
        self.samples: list[int] = []
        self.means: list[float] = []
        self.wait: threading.Event | None = None

    def part(self, group: Group, loss: torch.Tensor, weight: float, said: int, share: float) -> None:
        """Its backward begins when it may."""
        self.total = self.failed = None
        self.reducer.begin_part(group, weight, True, Said(said), share)
        if self.wait is not None:
            assert self.wait.wait(_SECONDS)
        loss.backward()
        self.reducer.rest()

    def go(self, group: Group, steps: int, wait: threading.Event | None = None) -> None:
        """`wait`: only when it is set is the first step's gradient there."""
        self.wait = wait
        for step in range(steps):
            late = self.reducer.late
            seed = 100 * group.rank + step
            rows = torch.randn(EACH, 5, generator=torch.Generator().manual_seed(seed))
            for each in self.statistics:
                each.fill_(float(group.rank + 1))
            own = 0 if late else EACH
            loss = self.model(rows.to(self.parameters[0].dtype)).mean()
            self.step(group, loss, own, PLANNED)
            if self.failed is not None:
                return
            assert self.total is not None
            self.gradients.append(self.gradient())
            self.samples.append(self.total.samples)
            self.means += [float(each[0]) for each in self.statistics]


def until(condition, what: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("late", [0, 2])
def test_the_others_go_on_and_who_is_late_catches_up(dtype: torch.dtype, late: int):
    """The leader of the votes may be the one who is late. fp64: the control vector does not ride."""
    team = groups(SIZE)
    workers = [Worker(dtype, averaged=True) for _ in team]
    free = threading.Event()

    def run(rank: int) -> None:
        workers[rank].go(team[rank], AHEAD + 2, free if rank == late else None)

    others = [workers[rank] for rank in range(SIZE) if rank != late]

    def release() -> None:
        until(lambda: all(len(w.gradients) >= AHEAD for w in others), "they go on")
        time.sleep(0.05)
        assert max(len(w.gradients) for w in others) == AHEAD  # and wait for it then
        assert not workers[late].gradients
        free.set()

    together([lambda r=rank: run(r) for rank in range(SIZE)] + [release])
    for step in range(AHEAD + 2):
        assert all(torch.equal(w.gradients[step], workers[0].gradients[step]) for w in workers), step
    # what the two others made: the mean over their own samples
    one = Worker(dtype)
    expected = []
    for rank in range(SIZE):
        if rank != late:
            rows = torch.randn(EACH, 5, generator=torch.Generator().manual_seed(100 * rank))
            one.model.zero_grad()
            one.reducer.rest()
            one.model(rows.to(dtype)).mean().backward()
            expected.append(one.gradient())
    assert torch.allclose(workers[late].gradients[0], sum(expected) / 2, rtol=1e-5)
    assert all(worker.samples[:AHEAD] == [2 * EACH] * AHEAD for worker in workers)
    assert len({tuple(worker.samples) for worker in workers}) == 1
    agreed = sum(rank + 1 for rank in range(SIZE) if rank != late) / 2
    assert all(worker.means[:AHEAD] == pytest.approx([agreed] * AHEAD) for worker in workers)
    assert len({tuple(worker.means) for worker in workers}) == 1
    for group in team:
        group.close()


@pytest.mark.slow
@pytest.mark.parametrize("late", [0, 2])
def test_a_loss_wakes_everybody(late: int):
    """What is kept already is taken all the same; then who was late finds the group broken."""
    team = groups(SIZE)
    workers = [Worker(torch.float32) for _ in team]
    free = threading.Event()
    gone = next(rank for rank in (1, 2) if rank != late)

    def run(rank: int) -> None:
        workers[rank].go(team[rank], 100, free if rank == late else None)

    def release() -> None:
        others = [w for rank, w in enumerate(workers) if rank != late]
        until(lambda: all(len(w.gradients) == AHEAD for w in others), "they go on")
        team[gone].interrupt()
        until(lambda: all(w.failed is not None for w in others), "the others wake")
        free.set()

    together([lambda r=rank: run(r) for rank in range(SIZE)] + [release])
    assert workers[late].failed is not None
    assert len(workers[late].gradients) == AHEAD
    for worker in workers:
        worker.reducer.abandon()
    for group in team:
        group.close()
    names = [thread.name for thread in threading.enumerate()]
    until(
        lambda: (
            not any(t.name.startswith(("shoal-votes", "shoal-stand-in")) for t in threading.enumerate())
        ),
        f"no thread is left of {names}",
    )
