"""A place in real shared memory for each test, which must be empty when it ends."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.elastic.checkpoint import memory
from tests.support.require import require


@pytest.fixture
def place() -> Iterator[Path]:
    """A place of its own, where no live writer may be left at the end."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        require("shm", "there is no /dev/shm")
    place = shared / f"shoal-test-{secrets.token_hex(6)}"
    yield place
    memory.discard(place)
    assert not place.exists(), list(place.rglob("*"))
