"""A watch over HTTP that survives lost connections, and `reflect`, which survives everything else.

A thread reads the stream into a bounded queue; when the queue is full it stops reading, and the
server, not this process, forgets what was not fetched: the watch then ends with `Expired`. A lost
connection is opened again after the last version seen, so nothing is missed or given twice.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import Any, Literal, NamedTuple, Protocol, cast

import msgspec

from shoal.background import SupervisedThread
from shoal.client.sse import ServerEvent, parse
from shoal.client.transport import Query, Stream, Transport
from shoal.objects.errors import Expired, ShoalError, Unavailable, by_code
from shoal.objects.kinds import Kind
from shoal.store.base import Event, Page, Record, Watch

_MOST_QUEUED = 4096
_LOST_SECONDS = 30.0
"""How long a server may be away before a watch of it ends."""


class RemoteWatch:
    """See `shoal.store.base.Watch`; opened and closed by `Client`."""

    def __init__(
        self, transport: Transport, kind: Kind, path: str, query: dict[str, str], version: str
    ) -> None:
        self._transport = transport
        self._kind = kind
        self._path = path
        self._query: Query = {**query, "watch": True}
        self._version = version
        self._events: deque[Event] = deque()
        self._failure: ShoalError | None = None
        self._wake: Callable[[], None] | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._ended = threading.Event()
        self._stream = self._open()
        self._thread = SupervisedThread(f"watch {kind.plural}", self._read, self._ended)
        self._thread.start()

    def poll(self) -> list[Event]:
        """See `Watch.poll`."""
        with self._changed:
            if not self._events and self._failure is not None:
                raise self._failure
            events = list(self._events)
            self._events.clear()
            self._changed.notify_all()
        return events

    @property
    def reads(self) -> bool:
        """See `Watch.reads`: a thread does."""
        return False

    def wait(self, timeout_seconds: float) -> list[Event]:
        """See `Watch.wait`."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._events or self._failure is not None or self._closed, timeout_seconds
            )
        return self.poll()

    def on_ready(self, wake: Callable[[], None]) -> None:
        """See `Watch.on_ready`."""
        with self._changed:
            self._wake = wake
            ready = bool(self._events) or self._failure is not None
        if ready:
            self._notify()

    def close(self) -> None:
        """See `Watch.close`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._ended.set()
        self._stream.close()
        self._thread.join(timeout=5.0)

    def fail(self, error: ShoalError) -> None:
        """End with this error, once what has come has been delivered."""
        self._fail(error)
        self._stream.close()

    @property
    def _over(self) -> bool:
        return self._closed or self._failure is not None

    def _open(self) -> Stream:
        headers = {"Accept": "text/event-stream"}
        if self._version:
            headers["Last-Event-ID"] = self._version
        return self._transport.open("GET", self._path, query=self._query, headers=headers)

    def _read(self) -> None:
        lost_since = 0.0
        while not self._over:
            try:
                for event in parse(self._stream.response):
                    lost_since = 0.0
                    self._take(event)
                    if self._over:
                        return
            except (OSError, HTTPException, ValueError, AttributeError):
                pass  # the connection is gone (closed here: the response has lost its file)
            if self._over:
                return
            lost_since = lost_since or time.monotonic()
            self._stream.close()
            if not self._reopen(lost_since):
                return

    def _reopen(self, lost_since: float) -> bool:
        pause = 0.05
        while not self._over:
            try:
                stream = self._open()
            except Unavailable as error:
                if time.monotonic() - lost_since > _LOST_SECONDS:
                    self._fail(error)
                    return False
                with self._changed:
                    self._changed.wait_for(lambda: self._over, pause)
                pause = min(1.0, pause * 2)
            except ShoalError as error:
                self._fail(error)
                return False
            else:
                with self._changed:
                    self._stream = stream
                    if self._over:
                        stream.close()
                return True
        return False

    def _take(self, event: ServerEvent) -> None:
        if event.type == "Error":
            document: Any = msgspec.json.decode(event.data)
            self._fail(by_code(document))
            return
        bookmark = event.type == "Bookmark"
        record = None if bookmark else Record(self._kind, event.data)
        kind = cast("Literal['Added', 'Modified', 'Deleted', 'Bookmark']", event.type)
        with self._changed:
            self._changed.wait_for(lambda: self._over or len(self._events) < _MOST_QUEUED)
            self._version = event.id or self._version
            self._events.append(Event(kind, self._version, record))
            self._changed.notify_all()
        self._notify()

    def _fail(self, error: ShoalError) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()
        self._notify()

    def _notify(self) -> None:
        wake = self._wake
        if wake is None or self._closed:
            return
        try:
            wake()
        except Exception:  # one reader's fault must not end this thread
            import logging

            logging.getLogger("shoal.client").exception(
                "the reader of a watch of %s could not be woken", self._kind.plural
            )


class Change(NamedTuple):
    """One step of `reflect`. `Synced` (no record) follows the first complete list."""

    type: Literal["Added", "Modified", "Deleted", "Synced"]
    record: Record | None


class ListsAndWatches(Protocol):
    """What `reflect` needs of a client."""

    def list(self, kind: Kind, *, namespace: str = "", selector: str = "", limit: int = 0) -> Page:
        """See `Store.list`."""
        ...

    def watch(self, kind: Kind, *, version: str, namespace: str = "") -> Watch:
        """See `Store.watch`."""
        ...


def reflect(client: ListsAndWatches, kind: Kind, namespace: str = "") -> Iterator[Change]:
    """Changes of state without end: what there is, then each change, never one missed for good.

    When the watch's window is gone the objects are listed again, and what differs from what was
    given before comes as changes; so a reader always ends up with the state as it is, though it may
    not have seen each step. Waits without limit; the reader leaves by closing the iterator.

    Raises:
        ShoalError: the server cannot be reached for long, or refuses.
    """
    known: dict[tuple[str, str], tuple[str, Record]] = {}
    synced = False
    while True:
        page = client.list(kind, namespace=namespace)
        yield from _differences(known, page)
        if not synced:
            synced = True
            yield Change("Synced", None)
        watch = client.watch(kind, version=page.version, namespace=namespace)
        try:
            while True:
                for event in watch.wait(3600.0):
                    if event.record is not None and event.type != "Bookmark":
                        yield from _step(known, event.type, event.record)
        except Expired:
            continue
        finally:
            watch.close()


def _differences(known: dict[tuple[str, str], tuple[str, Record]], page: Page) -> Iterator[Change]:
    listed = {_key(record): record for record in page.records}
    gone = [key for key in known if key not in listed]
    for key in gone:
        _, record = known.pop(key)
        yield Change("Deleted", record)
    for key, record in listed.items():
        identity = record.identity
        before = known.get(key)
        if before is not None and before[0] != identity.uid:
            yield Change("Deleted", before[1])
            before = None
        known[key] = (identity.uid, record)
        if before is None:
            yield Change("Added", record)
        elif before[1].identity.version != identity.version:
            yield Change("Modified", record)


def _step(
    known: dict[tuple[str, str], tuple[str, Record]],
    kind: Literal["Added", "Modified", "Deleted"],
    record: Record,
) -> Iterator[Change]:
    key = _key(record)
    if kind == "Deleted":
        known.pop(key, None)
        yield Change("Deleted", record)
        return
    yield Change("Modified" if key in known else "Added", record)
    known[key] = (record.identity.uid, record)


def _key(record: Record) -> tuple[str, str]:
    return (record.identity.namespace, record.identity.name)
