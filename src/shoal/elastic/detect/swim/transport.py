"""The sockets of one member: datagrams and questions at one port, sealed, on the caller's thread.

`turn` waits and returns what came as events for `Node.step`; `carry` sends what the step wants sent.
What cannot be sent, or is not sealed with the job's key, is dropped: the protocol lives with loss. What
is sealed can be replayed: every message is idempotent and carries an incarnation, so that an old one
changes nothing. A key is changed without a gap in three rounds over all members: accept both, seal with
the new one, accept the new one alone.

Over TCP a frame is four bytes of length (big endian) and as many bytes, sealed. The client connects,
sends one and reads one; the server reads one and sends one, or closes. Neither outlives its deadline.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import selectors
import socket
import struct
import time
from collections.abc import Callable

from shoal.elastic.detect.swim.node import Datagram, Event, Output, Request, Response
from shoal.elastic.detect.swim.settings import Settings

__all__ = ["SEAL_BYTES", "Keys", "Stream", "Transport", "Unreadable"]

SEAL_BYTES = 16


class Keys:
    """The key that seals, and others that are accepted too. Immutable."""

    def __init__(self, key: str, *also: str) -> None:
        self._keys = [hashlib.sha256(b"shoal swim " + each.encode()).digest() for each in (key, *also)]

    def seal(self, payload: bytes) -> bytes:
        """The payload with its seal before it."""
        return self._sealed(self._keys[0], payload) + payload

    def open(self, data: bytes) -> bytes | None:
        """The payload; None when no accepted key has sealed it."""
        seal, payload = data[:SEAL_BYTES], data[SEAL_BYTES:]
        for key in self._keys:
            if hmac.compare_digest(seal, self._sealed(key, payload)):
                return payload
        return None

    @staticmethod
    def _sealed(key: bytes, payload: bytes) -> bytes:
        return hmac.digest(key, payload, "sha256")[:SEAL_BYTES]


_LENGTH = struct.Struct(">I")


class Unreadable(ConnectionError):
    """The stream has broken, or what comes is too long."""


class Stream:
    """A non-blocking socket, what is to be sent on it, what has come; its owner knows it by `token`."""

    def __init__(self, sock: socket.socket, token: str, ends_at: float, limit_bytes: int) -> None:
        self.socket = sock
        self.token = token
        self.ends_at = ends_at
        self._limit = limit_bytes
        self._outgoing = b""
        self._incoming = bytearray()

    @property
    def interest(self) -> int:
        """What to wait for."""
        return selectors.EVENT_WRITE if self._outgoing else selectors.EVENT_READ

    def say(self, payload: bytes) -> None:
        """Send that next."""
        self._outgoing = _LENGTH.pack(len(payload)) + payload

    def flush(self) -> bool:
        """Send what goes; True when all has gone.

        Raises:
            Unreadable: there is no answer.
        """
        try:
            self._outgoing = self._outgoing[self.socket.send(self._outgoing) :]
        except BlockingIOError:
            return False
        except OSError as error:
            raise Unreadable(str(error)) from error
        return not self._outgoing

    def take(self) -> bytes | None:
        """Read what is there; the payload once all of it has come.

        Raises:
            Unreadable: it ends too early, or is longer than the limit.
        """
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return None
        except OSError as error:
            raise Unreadable(str(error)) from error
        if not data:
            raise Unreadable("closed before a whole frame had come")
        self._incoming += data
        if len(self._incoming) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._incoming)
        if length > self._limit:
            raise Unreadable(f"a frame of {length} bytes; the limit is {self._limit}")
        if len(self._incoming) < _LENGTH.size + length:
            return None
        return bytes(self._incoming[_LENGTH.size : _LENGTH.size + length])


_MAX_STREAMS = 128
_DATAGRAMS_PER_TURN = 64
_PORT_TRIES = 20


class Transport:
    """Bound to a port of `host` from the start; `address` is where others reach it.

    Raises:
        OSError: nothing can be bound there.
    """

    def __init__(
        self, host: str, keys: Keys, settings: Settings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.keys = keys
        self._settings = settings
        self._clock = clock
        self._udp, self._tcp = _bind(host)
        port: int = self._udp.getsockname()[1]
        self.address = f"{host}:{port}"
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._udp, selectors.EVENT_READ)
        self._selector.register(self._tcp, selectors.EVENT_READ)
        self._asking: dict[str, Stream] = {}
        self._answering: dict[str, Stream] = {}
        self._accepted = 0
        self.sent = 0
        """Datagrams given to the system."""
        self.dropped = 0
        """What came and was not ours: wrong seals, too long, too many streams."""

    def fileno(self) -> int:
        """Readable when `turn` has something to do."""
        return self._selector.fileno()  # type: ignore[attr-defined]  # epoll and kqueue have one

    @property
    def next_at(self) -> float:
        """When a stream gives up; infinite when there is none."""
        streams = (*self._asking.values(), *self._answering.values())
        return min((each.ends_at for each in streams), default=float("inf"))

    def turn(self, timeout_seconds: float) -> list[Event]:
        """Wait for that long at most; what has come."""
        events: list[Event] = []
        for key, _ in self._selector.select(max(0.0, timeout_seconds)):
            if key.fileobj is self._udp:
                events += self._datagrams()
            elif key.fileobj is self._tcp:
                self._accept()
            else:
                events += self._go_on(key.data)
        now = self._clock()
        for stream in [*self._asking.values(), *self._answering.values()]:
            if now >= stream.ends_at:
                events += self._over(stream)
        return events

    def carry(self, output: Output) -> list[Event]:
        """Do what a step asks for; what failed at once."""
        for address, payload in output.datagrams:
            with contextlib.suppress(OSError, ValueError):  # lost, as any datagram may be
                self._udp.sendto(self.keys.seal(payload), _where(address))
                self.sent += 1
        for token, payload in output.responses:
            stream = self._answering.get(token)
            if stream is not None:
                stream.say(self.keys.seal(payload))
                self._selector.modify(stream.socket, stream.interest, stream)
        events: list[Event] = []
        for address, payload, token, seconds in output.requests:
            events += self._ask(address, payload, token, seconds)
        return events

    def refuse(self, token: str) -> None:
        """Leave a request without an answer: its sender sees the stream end."""
        stream = self._answering.get(token)
        if stream is not None:
            self._over(stream)

    def close(self) -> None:
        """Close every socket."""
        for stream in [*self._asking.values(), *self._answering.values()]:
            self._over(stream)
        self._selector.close()
        self._udp.close()
        self._tcp.close()

    def _datagrams(self) -> list[Event]:
        events: list[Event] = []
        for _ in range(_DATAGRAMS_PER_TURN):
            try:
                data, source = self._udp.recvfrom(self._settings.packet_bytes + SEAL_BYTES + 1)
            except OSError:  # drained; or an earlier datagram of ours was refused
                break
            payload = self.keys.open(data)
            if payload is None:
                self.dropped += 1
            else:
                events.append(Datagram(f"{source[0]}:{source[1]}", payload))
        return events

    def _accept(self) -> None:
        try:
            sock, _ = self._tcp.accept()
        except OSError:
            return
        if len(self._answering) >= _MAX_STREAMS:
            self.dropped += 1
            sock.close()
            return
        self._accepted += 1
        token = f"accepted {self._accepted}"
        self._answering[token] = self._stream(sock, token, self._settings.stream_timeout)

    def _ask(self, address: str, payload: bytes, token: str, seconds: float) -> list[Event]:
        sock: socket.socket | None = None
        try:
            where = _where(address)
            sock = socket.socket(self._udp.family, socket.SOCK_STREAM)
            sock.setblocking(False)
            result = sock.connect_ex(where)
        except (OSError, ValueError):
            result = errno.EHOSTUNREACH
        if sock is None or result not in (0, errno.EINPROGRESS):
            if sock is not None:
                sock.close()
            return [Response(None, token)]
        stream = self._asking[token] = self._stream(sock, token, seconds)
        stream.say(self.keys.seal(payload))
        self._selector.modify(sock, stream.interest, stream)
        return []

    def _stream(self, sock: socket.socket, token: str, seconds: float) -> Stream:
        sock.setblocking(False)
        limit = self._settings.stream_bytes + SEAL_BYTES
        stream = Stream(sock, token, self._clock() + seconds, limit)
        self._selector.register(sock, stream.interest, stream)
        return stream

    def _go_on(self, stream: Stream) -> list[Event]:
        if stream.socket.fileno() < 0:  # given up earlier in this turn
            return []
        asking = stream.token in self._asking
        try:
            if stream.interest == selectors.EVENT_WRITE:
                if stream.flush():
                    if not asking:
                        return self._over(stream)
                    self._selector.modify(stream.socket, stream.interest, stream)
                return []
            data = stream.take()
        except Unreadable:
            self.dropped += 1
            return self._over(stream)
        if data is None:
            return []
        payload = self.keys.open(data)
        if payload is None:
            self.dropped += 1
            return self._over(stream)
        if asking:
            return self._over(stream, payload)
        return [Request(payload, stream.token)]

    def _over(self, stream: Stream, payload: bytes | None = None) -> list[Event]:
        asking = self._asking.pop(stream.token, None) is not None
        self._answering.pop(stream.token, None)
        self._selector.unregister(stream.socket)
        stream.socket.close()
        return [Response(payload, stream.token)] if asking else []


def _bind(host: str) -> tuple[socket.socket, socket.socket]:
    """UDP and TCP at the same port, which the system chooses."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for attempt in range(_PORT_TRIES):
        tcp = socket.socket(family, socket.SOCK_STREAM)
        udp = socket.socket(family, socket.SOCK_DGRAM)
        try:
            tcp.bind((host, 0))
            udp.bind((host, tcp.getsockname()[1]))
        except OSError:
            tcp.close()
            udp.close()
            if attempt == _PORT_TRIES - 1:
                raise
            continue
        tcp.listen(_MAX_STREAMS)
        tcp.setblocking(False)
        udp.setblocking(False)
        return udp, tcp
    raise AssertionError("the last attempt returns or raises")


def _where(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
