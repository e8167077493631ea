from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client import Client
from tests.server.harness import LiveServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "home")
    yield live
    live.close()


@pytest.fixture
def client(server: LiveServer) -> Iterator[Client]:
    with server.client() as connected:
        yield connected
