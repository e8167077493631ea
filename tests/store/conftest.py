from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres import PostgresServer, postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of this folder; each takes a database of its own."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_alone() -> Iterator[PostgresServer]:
    """A server that the test may stop."""
    with postgres_server() as server:
        yield server
