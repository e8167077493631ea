from __future__ import annotations

import pytest

from shoal.clock import Clock
from shoal.store.base import Authorise, Store, allow_all
from shoal.store.memory import MemoryStore, Window
from shoal.testing.store import Capability, StoreContract, StoreHarness


class MemoryHarness:
    capabilities: frozenset[Capability] = frozenset({"authorise", "clock", "window"})

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
