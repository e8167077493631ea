"""The listeners through which requests come, how wide each is, and TLS for the one over TCP.

`api` is the owner's unix socket, `tasks` the one that tasks see, `tcp` an address for people with
tokens. A listener knows its listening socket; a connection knows its listener by the address it came to.
What a client can take through a listener is bounded: connections in all, connections of one PID
namespace (one task cannot take its neighbours' places), and the time to send a request.

TLS uses a certificate that is given, or one that the server makes for itself. A self-made certificate
proves nothing by its issuer; clients pin its SHA-256 fingerprint, which the server writes to
`server.json` and `shoal login` shows. It is kept in `keys/`, so that it stays the same over restarts,
and is made anew when its files are removed. Imports little: a server listens before it loads the rest.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from shoal.objects.errors import Invalid, Unavailable

__all__ = ["Listener", "ListenerName", "Listeners", "Tls", "is_loopback", "listen_tcp", "server_tls"]

ListenerName = Literal["api", "tasks", "tcp"]

_WIDTH = {"api": 2048, "tasks": 1024, "tcp": 512}
_WIDTH_PER_SPACE = 64
_BACKLOG = 512
_VALID_DAYS = 3650
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass
class Listener:
    """One listening socket and its open connections. Touched on the event loop only."""

    name: ListenerName
    socket: socket.socket
    tls: ssl.SSLContext | None = None
    _inside: Counter[str] = field(default_factory=Counter[str])

    def enter(self, space: str) -> bool:
        """Take a place for a connection from that PID namespace; False when there is none."""
        if self._inside.total() >= _WIDTH[self.name]:
            return False
        if self.name == "tasks" and self._inside[space] >= _WIDTH_PER_SPACE:
            return False
        self._inside[space] += 1
        return True

    def leave(self, space: str) -> None:
        """Give the place back."""
        self._inside[space] -= 1
        if self._inside[space] <= 0:
            del self._inside[space]


class Listeners:
    """All listeners of a server."""

    def __init__(self, listeners: list[Listener]) -> None:
        self._listeners = listeners
        self._by_address: dict[Any, Listener] = {_address(each.socket): each for each in listeners}

    def __iter__(self) -> Iterator[Listener]:
        return iter(self._listeners)

    @property
    def sockets(self) -> list[socket.socket]:
        """The sockets to accept on."""
        return [each.socket for each in self._listeners]

    def of(self, connection: socket.socket) -> Listener:
        """The listener that a connection came through."""
        return self._by_address.get(_address(connection)) or self._listeners[-1]


def listen_tcp(text: str) -> socket.socket:
    """A socket that listens at `HOST:PORT`.

    Raises:
        Invalid: that is no such address.
        Unavailable: it cannot be listened at.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise Invalid(f"{text!r} is not an address to listen at", hint="such as 127.0.0.1:7450")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host.strip("[]"), int(port)), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise Unavailable(
            f"nothing can listen at {text}: {error}", hint="choose another port, or 0 for any"
        ) from error


def _address(sock: socket.socket) -> Any:
    """Unix sockets by their path; TCP by port, for a listener at 0.0.0.0 has connections at others."""
    address = sock.getsockname()
    return address if isinstance(address, str | bytes) else address[1]


class Tls(NamedTuple):
    """What a listener needs, and what its clients pin."""

    context: ssl.SSLContext
    fingerprint: str
    """SHA-256 of the certificate, in hexadecimal."""


def server_tls(keys: Path, certificate: str = "", key: str = "") -> Tls:
    """TLS with the given certificate (PEM, chain included) and key, or with the server's own.

    Raises:
        Invalid: the files cannot be read, or do not belong together.
    """
    if bool(certificate) != bool(key):
        raise Invalid("a certificate and its key go together", hint="give --tls-cert and --tls-key")
    if not certificate:
        certificate, key = str(keys / "tls.crt"), str(keys / "tls.key")
        if not (Path(certificate).exists() and Path(key).exists()):
            _make(Path(certificate), Path(key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
        pem = Path(certificate).read_text(encoding="ascii")
        first = pem[pem.index(_BEGIN) : pem.index(_END) + len(_END)]
        fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).hexdigest()
    except (OSError, ValueError) as error:
        raise Invalid(
            f"the certificate {certificate} with the key {key} cannot be used: {error}"
        ) from error
    return Tls(context, fingerprint)


def is_loopback(address: str) -> bool:
    """Whether `HOST:PORT` can be reached from this machine alone."""
    return address.rpartition(":")[0].strip("[]") in _LOOPBACK


_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def _make(certificate: Path, key: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "shoal")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(private, hashes.SHA256())
    )
    text = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    # the certificate goes first and comes last, so that it never stands beside another key
    certificate.unlink(missing_ok=True)
    for path, data in ((key, text), (certificate, made.public_bytes(serialization.Encoding.PEM))):
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        draft.replace(path)
