from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres import PostgresServer, postgres_server

# failures of the contract suites are explained as those of any test are
pytest.register_assert_rewrite("shoal.testing.history")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of this folder; each takes a database of its own."""
    with postgres_server() as server:
        yield server
