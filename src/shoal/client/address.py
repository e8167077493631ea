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

LONGEST_SOCKET_PATH = 107


@dataclass(frozen=True)
class Address:
    """A server's address, taken apart. `path` is set for unix sockets, `host` otherwise."""

    text: str
    path: str = ""
    host: str = ""
    port: int = 0
    secure: bool = False
    fingerprint: str = ""
    """SHA-256 of the server's certificate: it alone is trusted. Empty: the system's authorities are."""

    @classmethod
    def parse(cls, text: str, fingerprint: str = "") -> Address:
        """Read an address; `fingerprint` pins the certificate of an https one.

        Raises:
            Invalid: it is none.
        """
        scheme, _, rest = text.partition("://")
        if scheme == "unix" and rest.startswith("/"):
            return cls(text, path=rest)
        host, _, port = rest.rstrip("/").rpartition(":") if ":" in rest else (rest.rstrip("/"), "", "")
        if scheme in ("http", "https") and host and (port.isdecimal() or not port):
            secure = scheme == "https"
            number = int(port or (443 if secure else 80))
            pinned = normal_fingerprint(fingerprint) if secure and fingerprint else ""
            return cls(text, "", host.strip("[]"), number, secure, pinned)
        raise Invalid(
            f"{text!r} is not the address of a server",
            hint="write unix:///path/of/api.sock, http://HOST:PORT or https://HOST:PORT",
        )

    def open(self, timeout_seconds: float) -> HTTPConnection:
        """A connection, not yet connected."""
        if self.path:
            return _UnixConnection(self.path, timeout_seconds)
        if self.secure:
            return _secure(self, timeout_seconds)
        return HTTPConnection(self.host, self.port, timeout=timeout_seconds)


def normal_fingerprint(text: str) -> str:
    """A SHA-256 fingerprint in lower-case hexadecimal without colons.

    Raises:
        Invalid: it is none.
    """
    plain = text.strip().lower().removeprefix("sha256:").replace(":", "")
    if len(plain) != 64 or set(plain) - set("0123456789abcdef"):
        raise Invalid(f"{text!r} is no SHA-256 fingerprint", hint="64 hexadecimal digits")
    return plain


def certificate_fingerprint(address: Address, timeout_seconds: float = 10.0) -> str:
    """The SHA-256 of the certificate that the server at an https address shows. It is not verified.

    Raises:
        Unavailable: no TLS server answers there.
    """
    import hashlib
    import ssl

    try:
        pem = ssl.get_server_certificate((address.host, address.port), timeout=timeout_seconds)
    except (OSError, ValueError) as error:
        raise Unavailable(f"no TLS server answers at {address.text} ({error})") from error
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


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


def _secure(address: Address, timeout_seconds: float) -> HTTPConnection:
    """An https connection; nothing is sent before the certificate has been compared."""
    import hashlib
    import ssl
    from http.client import HTTPSConnection

    if not address.fingerprint:
        return HTTPSConnection(address.host, address.port, timeout=timeout_seconds)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the pinned fingerprint is what is verified

    class Pinned(HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            shown = hashlib.sha256(self.sock.getpeercert(binary_form=True) or b"").hexdigest()
            if shown != address.fingerprint:
                self.close()
                raise Unavailable(
                    f"the server at {address.text} shows another certificate ({shown}) than the one "
                    f"that is trusted ({address.fingerprint})",
                    hint="if its owner has replaced it: shoal login again; otherwise do not go on",
                )

    return Pinned(address.host, address.port, timeout=timeout_seconds, context=context)


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
