from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.elastic.scenarios.nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Shared by all tests of a run."""
    made = Nursery()
    yield made
    made.close()
