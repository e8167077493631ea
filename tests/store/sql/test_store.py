from __future__ import annotations

from pathlib import Path

import pytest

from shoal.clock import Clock
from shoal.store.base import Authorise, Store, allow_all
from shoal.store.sql import Window, open_sql
from shoal.testing.store import Capability, StoreContract, StoreHarness
from tests.support.postgres import PostgresServer


class SqlHarness:
    capabilities: frozenset[Capability] = frozenset(
        {"authorise", "clock", "window", "durable", "shared", "newer", "lagging"}
    )

    def __init__(self, place: str) -> None:
        self.place = place

    def open(
        self,
        *,
        authorise: Authorise | None = None,
        clock: Clock | None = None,
        window: Window | None = None,
    ) -> Store:
        return open_sql(self.place, authorise=authorise or allow_all, clock=clock, window=window)

    def command(self) -> tuple[str, str]:
        return "shoal.store.sql:open_sql", self.place


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> StoreHarness:
        return SqlHarness(str(tmp_path / "store.db"))


@pytest.mark.postgres
@pytest.mark.process
class TestPostgresStore(StoreContract):
    @pytest.fixture
    def harness(self, postgres: PostgresServer) -> StoreHarness:
        return SqlHarness(postgres.database())
