from tests.server.conftest import client, server

__all__ = ["client", "server"]
