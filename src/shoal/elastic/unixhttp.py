"""HTTP over a unix socket, with the standard library: how a job's processes speak with the platform."""

from __future__ import annotations

import http.client
import socket

__all__ = ["UnixConnection", "path_of"]


def path_of(api: str) -> str:
    """The socket's path in `SHOAL_API`, which may be written as an address."""
    return api.removeprefix("unix://").removeprefix("unix:")


class UnixConnection(http.client.HTTPConnection):
    """A connection to the socket at `path`; `timeout` is that of each operation, in seconds."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket in the file system."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(self.timeout)
        try:
            sock.connect(self._path)
        except OSError:
            sock.close()
            raise
        self.sock = sock
