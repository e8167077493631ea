"""HTTP from a task to the platform, with the standard library alone.

`SHOAL_API` is a unix socket (a path, or `unix://PATH`), or an `https://HOST:PORT` address;
`SHOAL_API_FINGERPRINT` pins its certificate. Used by what runs in users' programs: `shoal.report` and
`shoal.elastic`.
"""

from __future__ import annotations

import http.client
import os
import socket
from typing import cast

__all__ = ["open_connection"]

_LONGEST_SOCKET_PATH = 107


def open_connection(api: str, timeout: float, fingerprint: str = "") -> http.client.HTTPConnection:
    """A connection to the platform, not yet connected; `timeout` is that of each operation, in seconds.
    A fingerprint makes its certificate the only one that is trusted."""
    scheme, _, rest = api.partition(":")
    rest = rest.removeprefix("//").rstrip("/")
    if scheme == "https":
        return _secure(rest, timeout, fingerprint)
    if scheme == "http":
        return http.client.HTTPConnection(rest, timeout=timeout)
    return _UnixConnection(rest if scheme == "unix" else api, timeout)


def _secure(host: str, timeout: float, fingerprint: str) -> http.client.HTTPConnection:
    import hashlib
    import ssl

    if not fingerprint:
        return http.client.HTTPSConnection(host, timeout=timeout)
    pinned = fingerprint.strip().lower().removeprefix("sha256:").replace(":", "")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the pinned fingerprint is what is verified

    class Pinned(http.client.HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            shown = cast("ssl.SSLSocket", self.sock).getpeercert(binary_form=True) or b""
            if hashlib.sha256(shown).hexdigest() != pinned:
                self.close()
                raise OSError("the server shows another certificate than the one that is trusted")

    return Pinned(host, timeout=timeout, context=context)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket. A path that is too long for one is reached through its folder."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("shoal", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(self.timeout)
            if len(os.fsencode(self._path)) <= _LONGEST_SOCKET_PATH:
                sock.connect(self._path)
            else:
                _connect_through_folder(sock, self._path)
        except OSError:
            sock.close()
            raise
        self.sock = sock


def _connect_through_folder(sock: socket.socket, path: str) -> None:
    parent, _, name = path.rpartition("/")
    folder = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sock.connect(f"/proc/self/fd/{folder}/{name}")
    finally:
        os.close(folder)
