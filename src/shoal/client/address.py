"""Where a server is: `unix:///path/of/api.sock`, `http://host:port` or `https://host:port`.

A unix socket's path may have 107 bytes at most; a longer one is reached through its folder's entry in
`/proc/self/fd`, so any `$SHOAL_HOME` works on Linux.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

from shoal.objects.errors import Invalid, Unavailable

__all__ = ["LONGEST_SOCKET_PATH", "Address", "connect_unix", "home_address", "shoal_home"]

LONGEST_SOCKET_PATH = 107


@dataclass(frozen=True)
class Address:
    """A server's address, taken apart. `path` is set for unix sockets, `host` otherwise."""

    text: str
    path: str = ""
    host: str = ""
    port: int = 0
    secure: bool = False

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read an address.

        Raises:
            Invalid: it is none.
        """
        scheme, _, rest = text.partition("://")
        if scheme == "unix" and rest.startswith("/"):
            return cls(text, path=rest)
        host, _, port = rest.rstrip("/").rpartition(":") if ":" in rest else (rest.rstrip("/"), "", "")
        if scheme in ("http", "https") and host and (port.isdecimal() or not port):
            secure = scheme == "https"
            return cls(
                text, host=host.strip("[]"), port=int(port or (443 if secure else 80)), secure=secure
            )
        raise Invalid(
            f"{text!r} is not the address of a server",
            hint="write unix:///path/of/api.sock, http://HOST:PORT or https://HOST:PORT",
        )

    def open(self, timeout_seconds: float) -> HTTPConnection:
        """A connection, not yet connected."""
        if self.path:
            return _UnixConnection(self.path, timeout_seconds)
        if self.secure:
            from http.client import HTTPSConnection

            return HTTPSConnection(self.host, self.port, timeout=timeout_seconds)
        return HTTPConnection(self.host, self.port, timeout=timeout_seconds)


def shoal_home(home: str | os.PathLike[str] | None = None) -> Path:
    """The folder of all state: the one given, else `$SHOAL_HOME`, else `~/.shoal`."""
    said = os.fspath(home) if home is not None else os.environ.get("SHOAL_HOME", "")
    return Path(said).expanduser().absolute() if said else Path.home() / ".shoal"


def home_address(home: Path) -> Address:
    """The address of the server that runs for `home`."""
    path = str(home / "api.sock")
    return Address(f"unix://{path}", path=path)


def connect_unix(path: str, timeout_seconds: float | None) -> socket.socket:
    """A connected stream socket, however long the path.

    Raises:
        OSError: no server listens there.
        Unavailable: the path is too long for this system.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_seconds)
        if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
            sock.connect(path)
        else:
            _connect_through_folder(sock, Path(path))
    except BaseException:
        sock.close()
        raise
    return sock


class _UnixConnection(HTTPConnection):
    """HTTP over a unix socket; the Host header says `shoal`."""

    def __init__(self, path: str, timeout_seconds: float) -> None:
        super().__init__("shoal", timeout=timeout_seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = connect_unix(self._path, self.timeout)


def _connect_through_folder(sock: socket.socket, path: Path) -> None:
    if not Path("/proc/self/fd").is_dir():
        raise Unavailable(
            f"the path {path} is longer than the {LONGEST_SOCKET_PATH} bytes that a socket's may have",
            hint="choose a shorter SHOAL_HOME",
        )
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sock.connect(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
