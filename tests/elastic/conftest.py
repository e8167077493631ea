from __future__ import annotations

import os
from collections.abc import Iterator

# before torch is imported: several of its threads in each of several processes hold each other up
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

from tests.elastic import forked
from tests.elastic.machine import Baseline


@pytest.fixture(scope="session", autouse=True)
def _fork_server_ends() -> Iterator[None]:
    """The fork server is started by the first test that needs it, and shared by all tests of a run."""
    yield
    forked.close()


@pytest.fixture
def baseline() -> Iterator[Baseline]:
    """How slow the machine is while the test runs."""
    with Baseline() as measured:
        yield measured
