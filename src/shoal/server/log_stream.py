"""Reading the logs of a job's tasks as one stream, and following them until the job has finished.

A *pass* reads every chosen log from where it was left to where it ends now, in the order of writing.
Following is pass after pass; what a pass costs decides how soon the next one comes. A log is closed,
and looked at no more, once a pass has found nothing new in it and its task is known to have ended.
The stream ends when the job has finished, nothing of it runs, and a last pass found nothing.

Works a portion at a time (`step`), so a slow reader holds no more than one portion; called from one
thread at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from shoal.client.wire import data_frame, frame
from shoal.clock import Clock
from shoal.history.base import LogChunk, LogKey, Logs
from shoal.objects.errors import Expired, NotFound
from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from shoal.objects.ranges import IndexMap
from shoal.server.reports import KnownTasks
from shoal.store.base import SYSTEM, Store, Watch

_PORTION_BYTES = 256 * 1024
_MERGE_BYTES = 64 * 1024 * 1024
"""The logs that are merged hold so much together at most, shared equally,"""
_SMALLEST_CHUNK_BYTES = 4096
"""and no less than this each."""
_LONGEST_PAUSE_SECONDS = 5.0
_SETTLE_SECONDS = 2.0
"""A log this long silent, of a task that is not among the living, is closed."""
_SLACK_SECONDS = 0.2
"""The precision of a log's stamps, with room."""
_FINISHED = ("Succeeded", "Failed", "Cancelled")


@dataclass(frozen=True)
class LogQuery:
    """What was asked for."""

    role: str = ""
    index: int | None = None
    since: float = 0.0
    tail: int | None = None
    follow: bool = False
    previous: bool = False
    incarnation: int | None = None
    """Only this start of each index."""
    positions: Mapping[str, int] = field(default_factory=dict[str, int])
    """Where a reader that was cut off has got to: `ROLE/INDEX/INCARNATION` to offset."""


@dataclass
class _Source:
    id: int
    key: LogKey
    offset: int
    since: float = 0.0
    tail: int = 0
    heard: float = 0.0
    """When something new was last found, monotonic."""
    fresh: bool = False
    """Whether the present pass has found something new."""


class LogStream:
    """One reader's way through the logs of one job."""

    def __init__(
        self,
        job: Job,
        query: LogQuery,
        *,
        logs: Logs,
        store: Store,
        tasks: KnownTasks,
        clock: Clock,
    ) -> None:
        self._job: Job | None = job
        self._name = (job.metadata.namespace, job.metadata.name, job.metadata.uid)
        self._query = query
        self._logs = logs
        self._store = store
        self._tasks = tasks
        self._clock = clock
        self._asked_at = clock.now()
        self._sources: dict[LogKey, _Source] = {}
        self._closed: set[LogKey] = set()
        self._begun: set[tuple[str, int]] = set()
        self._floors: dict[tuple[str, int], int] = {}
        self._first = True
        self._watch: Watch | None = None
        self._pass: Iterator[tuple[_Source, LogChunk]] | None = None
        self._began = 0.0
        self._alive: set[tuple[str, int, int]] | None = None
        self._over = False
        self.done = False
        self.pause_seconds = 0.0
        """How long to wait before the next `step`."""

    @property
    def found_logs(self) -> bool:
        """Whether there was any log to read."""
        return bool(self._sources)

    @property
    def starts(self) -> dict[str, IndexMap]:
        """Of each role, every index that has a log, to its newest incarnation."""
        namespace, name, uid = self._name
        newest: dict[str, dict[int, int]] = {}
        for key in self._logs.keys(namespace, name, uid):
            numbers = newest.setdefault(key.role, {})
            numbers[key.index] = max(key.incarnation, numbers.get(key.index, 0))
        return {role: IndexMap(numbers) for role, numbers in newest.items()}

    def watch(self) -> Watch | None:
        """Wakes the stream when the job changes, so that waiting is cut short; only while following."""
        if self._query.follow and self._watch is None and self._job is not None:
            self._watch = self._rewatch()
        return self._watch

    def close(self) -> None:
        """Let go of the watch; idempotent."""
        if self._watch is not None:
            self._watch.close()

    def step(self) -> list[bytes]:
        """The next frames, not many; afterwards look at `done` and `pause_seconds`."""
        frames: list[bytes] = []
        if self._pass is None:
            frames += self._begin()
        assert self._pass is not None
        size = 0
        for source, chunk in self._pass:
            source.offset = chunk.offset + len(chunk.data)
            source.fresh = True
            frames.append(data_frame(source.id, chunk.at, chunk.offset, chunk.data))
            size += len(chunk.data)
            if size >= _PORTION_BYTES:
                self.pause_seconds = 0.0
                return frames
        self._end()
        return frames

    def _begin(self) -> list[bytes]:
        self._began = self._clock.monotonic()
        if self._query.follow:
            self._look_at_job()
            self._alive = self._living()
        # looked at before the pass: what it finds afterwards is complete
        self._over = not self._query.follow or self._is_over()
        frames = self._choose()
        open_sources = [s for s in self._sources.values() if s.key not in self._closed]
        for source in open_sources:
            source.fresh = False
        share = _MERGE_BYTES // max(1, len(open_sources))
        chunk_bytes = min(_PORTION_BYTES, max(_SMALLEST_CHUNK_BYTES, share))
        reads = [self._read(source, chunk_bytes) for source in open_sources]
        self._pass = heapq.merge(*reads, key=_written)
        return frames

    def _end(self) -> None:
        self._pass = None
        self._first = False
        now = self._clock.monotonic()
        found = False
        for source in self._sources.values():
            source.tail = 0
            if source.fresh:
                source.heard, source.since, found = now, 0.0, True
            elif (
                self._alive is not None
                and not self._lives(source)
                and now - source.heard > _SETTLE_SECONDS
            ):
                self._closed.add(source.key)
        self.done = self._over and not (found and self._query.follow)
        took = now - self._began
        self.pause_seconds = 0.0 if found else min(_LONGEST_PAUSE_SECONDS, max(0.03, 4 * took))

    def _choose(self) -> list[bytes]:
        """Take in logs that are new since the last pass; introduces them to the reader."""
        namespace, name, uid = self._name
        query = self._query
        keys = self._logs.keys(namespace, name, uid, role=query.role, index=query.index)
        if self._first:
            self._set_floors(keys)
        frames: list[bytes] = []
        for key in keys:
            if key in self._sources or not self._wanted(key):
                continue
            source = self._new_source(key)
            self._sources[key] = source
            said = {
                "id": source.id,
                "role": key.role,
                "index": key.index,
                "incarnation": key.incarnation,
            }
            frames.append(frame(b"S", msgspec.json.encode(said)))
        return frames

    def _set_floors(self, keys: tuple[LogKey, ...]) -> None:
        """From which incarnation of each index on logs are wanted."""
        back = 2 if self._query.previous else 1
        incarnations: dict[tuple[str, int], list[int]] = {}
        for key in keys:
            incarnations.setdefault((key.role, key.index), []).append(key.incarnation)
        for place, numbers in incarnations.items():
            self._floors[place] = sorted(numbers)[-back] if len(numbers) >= back else -1
        for text in self._query.positions:
            role, index, incarnation = text.rsplit("/", 2)
            place = (role, int(index))
            self._floors[place] = min(self._floors.get(place, int(incarnation)), int(incarnation))

    def _wanted(self, key: LogKey) -> bool:
        if self._query.incarnation is not None:
            return key.incarnation == self._query.incarnation
        floor = self._floors.get((key.role, key.index), 0)
        if self._query.previous:
            return key.incarnation == floor
        return key.incarnation >= floor

    def _new_source(self, key: LogKey) -> _Source:
        query = self._query
        known = query.positions.get(_position_key(key))
        place = (key.role, key.index)
        narrowed = self._first and known is None and place not in self._begun
        self._begun.add(place)
        if narrowed and query.tail == 0:
            known = self._end_of(key)  # nothing of what is there: only what comes
        return _Source(
            id=len(self._sources),
            key=key,
            offset=known or 0,
            since=query.since if narrowed else 0.0,
            tail=(query.tail or 0) if narrowed else 0,
            heard=self._clock.monotonic(),
        )

    def _end_of(self, key: LogKey) -> int:
        end = 0
        for chunk in self._logs.read(key, tail_lines=1):
            end = chunk.offset + len(chunk.data)
        return end

    def _read(self, source: _Source, chunk_bytes: int) -> Iterator[tuple[_Source, LogChunk]]:
        chunks = self._logs.read(
            source.key,
            offset=source.offset,
            since=source.since,
            tail_lines=source.tail,
            chunk_bytes=chunk_bytes,
        )
        for chunk in chunks:
            # a task that writes faster than it is read must not keep a plain read from ending
            if not self._query.follow and chunk.at > self._asked_at + _SLACK_SECONDS:
                return
            yield source, chunk

    def _look_at_job(self) -> None:
        watch = self.watch()
        if watch is None:
            return
        try:
            for event in watch.poll():
                if event.record is not None and self._is_ours(event.record.object):
                    self._job = None if event.type == "Deleted" else event.record.object
        except Expired:
            watch.close()
            self._watch = self._rewatch()

    def _rewatch(self) -> Watch:
        namespace, name, _ = self._name
        version = self._store.list(JOB, actor=SYSTEM, namespace=namespace, limit=1).version
        watch = self._store.watch(JOB, actor=SYSTEM, version=version, namespace=namespace)
        try:
            job = self._store.get(Job, namespace, name, actor=SYSTEM)
            self._job = job if self._is_ours(job) else None
        except NotFound:
            self._job = None
        return watch

    def _is_ours(self, job: Job) -> bool:
        return job.metadata.uid == self._name[2]

    def _living(self) -> set[tuple[str, int, int]] | None:
        """The job's tasks that have not ended; None where that is not known."""
        tasks = self._tasks(self._name[2])
        if tasks is None:
            return None
        return {
            (task.spec.role, task.spec.index, task.spec.incarnation)
            for task in tasks
            if task.phase != "Ended"
        }

    def _lives(self, source: _Source) -> bool:
        key = source.key
        return self._alive is None or (key.role, key.index, key.incarnation) in self._alive

    def _is_over(self) -> bool:
        finished = self._job is None or self._job.status.phase in _FINISHED
        return finished and not self._alive


def _written(item: tuple[_Source, LogChunk]) -> float:
    return item[1].at


def _position_key(key: LogKey) -> str:
    return f"{key.role}/{key.index}/{key.incarnation}"
