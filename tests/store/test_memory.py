from __future__ import annotations

import itertools
import threading
import tracemalloc

import pytest

from shoal.clock import Clock
from shoal.objects.kinds import JOB
from shoal.store.base import SYSTEM, Authorise, Store, allow_all
from shoal.store.memory import MemoryStore, Window
from shoal.testing.store import Capability, StoreContract, StoreHarness
from shoal.testing.store.harness import job, names, start_of
from shoal.testing.store.status import patch


class MemoryHarness:
    capabilities: frozenset[Capability] = frozenset({"authorise", "clock", "window", "newer", "lagging"})

    def open(
        self,
        *,
        authorise: Authorise | None = None,
        clock: Clock | None = None,
        window: Window | None = None,
    ) -> Store:
        return MemoryStore(authorise=authorise or allow_all, clock=clock, window=window)

    def command(self) -> tuple[str, str]:
        raise NotImplementedError


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def harness(self) -> StoreHarness:
        return MemoryHarness()


@pytest.mark.slow
def test_a_thousand_jobs_fit_in_three_megabytes() -> None:
    tracemalloc.start()
    store = MemoryStore()
    for number in range(1_000):
        made = store.create(job(f"job-{number}", labels={"team": "a"}), actor=SYSTEM)
        patch(store, made, 0, {"phase": "Pending", "reason": "Limit", "message": "x" * 80})
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 3.2e6
    assert len(store.list(JOB, actor=SYSTEM).records) == 1_000


def test_a_simulation_may_give_the_uids() -> None:
    numbers = itertools.count(1)
    store = MemoryStore(new_uid=lambda: f"uid-{next(numbers)}")
    assert [store.create(job(name), actor=SYSTEM).metadata.uid for name in "ab"] == ["uid-1", "uid-2"]


def test_whoever_is_woken_may_call_the_store() -> None:
    """From the waking thread, and from another that the waking one waits for."""
    store = MemoryStore()
    watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
    found: list[list[str]] = []

    def look() -> None:
        found.append(names(store.list(JOB, actor=SYSTEM)))

    def wake() -> None:
        look()
        thread = threading.Thread(target=look)
        thread.start()
        thread.join(30)

    watch.on_ready(wake)
    store.create(job("a"), actor=SYSTEM)
    assert found == [["a"], ["a"]]
