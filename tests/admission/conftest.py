from __future__ import annotations

from tests.server.conftest import client, server

__all__ = ["client", "server"]
