"""The listeners through which requests come, and how many connections each holder may have.

`api` is the owner's unix socket, `tasks` the one that tasks see, `tcp` an address for people with
tokens. A listener knows its listening socket; a connection knows its listener by the address it came to.

A connection belongs to a *holder* from the start, its origin: the job of the process that connected (by
its control group or supervisor, so that nested PID namespaces change nothing), or the client's address.
Once a request shows a token, the connection counts for that job or user as well. A holder may have at
most half as many connections as are free, so no number of holders takes all of them, and a newcomer
always finds room. The owner's processes at `api` have no such bound.

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

ListenerName = Literal["api", "tasks", "tcp"]

_WIDTH = {"api": 2048, "tasks": 2048, "tcp": 1024}
REFUSALS = 32
"""Connections above the bound of a holder that are still answered, to say so."""
_BACKLOG = 512
_VALID_DAYS = 3650
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass
class Listener:
    """One listening socket and its open connections. Touched on the event loop only."""

    name: ListenerName
    socket: socket.socket
    tls: ssl.SSLContext | None = None
    _origins: Counter[str] = field(default_factory=Counter[str])
    _identities: Counter[str] = field(default_factory=Counter[str])

    def __post_init__(self) -> None:
        if isinstance(self.socket, _GuardedSocket):
            self.socket.listener = self

    def bound(self) -> int:
        """Connections that one holder may have now."""
        return (_WIDTH[self.name] - self._origins.total() + 1) // 2

    def admits(self, origin: str, slack: int = 0) -> bool:
        """Whether there is room for one more connection of the origin ("": the owner)."""
        if self._origins.total() >= _WIDTH[self.name] + slack:
            return False
        return not origin or self._origins[origin] < max(1, self.bound()) + slack

    def enter(self, origin: str) -> None:
        """Count a connection."""
        self._origins[origin] += 1
        self._count()

    def leave(self, origin: str) -> None:
        """Count it no longer."""
        _drop(self._origins, origin)
        self._count()

    def _count(self) -> None:
        from shoal.metrics import HTTP_CONNECTIONS  # late, as above

        HTTP_CONNECTIONS.labels(self.name).set(self._origins.total())

    def refused(self, reason: str) -> None:
        """A connection was refused or cut off."""
        from shoal.metrics import HTTP_REFUSED  # late: a server listens before it loads the rest

        HTTP_REFUSED.labels(self.name, reason).inc()

    def identify(self, old: str, new: str) -> bool:
        """Count a connection for the job or user of its token; False when that has too many."""
        if self.name != "api" and new != old and self._identities[new] >= max(1, self.bound()):
            self.refused("identity")
            return False
        if old:
            _drop(self._identities, old)
        if new:
            self._identities[new] += 1
        return True


class Seat:
    """One connection's place in its listener, given back by `leave`."""

    def __init__(self, listener: Listener, origin: str) -> None:
        self.listener = listener
        self._origin = origin
        self._identity = ""
        listener.enter(origin)

    def identify(self, name: str) -> bool:
        """See `Listener.identify`."""
        if not self.listener.identify(self._identity, name):
            return False
        self._identity = name
        return True

    def leave(self) -> None:
        """Give the place back."""
        self.listener.identify(self._identity, "")
        self.listener.leave(self._origin)


class _GuardedSocket(socket.socket):
    """A TCP listening socket that closes at once what an address opens far beyond its bound: connections
    that never end their TLS handshake show nowhere else."""

    listener: Listener | None = None
    """Set by its listener; without one there is no bound."""

    def __init__(self, plain: socket.socket) -> None:
        super().__init__(plain.family, plain.type, plain.proto, plain.detach())
        self._open: Counter[str] = Counter()

    def accept(self) -> tuple[socket.socket, Any]:
        """See `socket.socket.accept`."""
        plain, address = super().accept()
        host = str(address[0])
        if self.listener is not None and self._open[host] >= self.listener.bound() + REFUSALS:
            plain.close()
            self.listener.refused("address")
            raise ConnectionAbortedError(f"{host} has too many connections")
        self._open[host] += 1
        return _CountedSocket(plain, self._open, host), address


class _CountedSocket(socket.socket):
    """An accepted connection that is counted until it is closed."""

    def __init__(self, plain: socket.socket, counter: Counter[str], host: str) -> None:
        super().__init__(plain.family, plain.type, plain.proto, plain.detach())
        self._counted: Counter[str] | None = counter
        self._host = host

    def close(self) -> None:
        """See `socket.socket.close`."""
        if self._counted is not None:
            _drop(self._counted, self._host)
            self._counted = None
        super().close()


def _drop(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]


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
        made = socket.create_server((host.strip("[]"), int(port)), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise Unavailable(
            f"nothing can listen at {text}: {error}", hint="choose another port, or 0 for any"
        ) from error
    return _GuardedSocket(made)


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
