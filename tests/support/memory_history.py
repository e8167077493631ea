"""History and logs that live as long as their process."""

from __future__ import annotations

import bisect
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec import structs

from shoal.history.base import (
    About,
    Entry,
    EntryType,
    JobKey,
    LogChunk,
    LogKey,
    Point,
    Retention,
)
from shoal.history.rows import normal, point_from_row, point_to_row
from shoal.objects.errors import Expired
from shoal.objects.meta import Stamp


class MemoryHistory:
    """See `shoal.history.base.History`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: list[_Place] = []
        self._by_id: dict[str, tuple[_Place, Entry]] = {}
        self._appended = 0
        self._points: list[Point] = []
        self._points_of: defaultdict[str, list[Point]] = defaultdict(list)
        """Uid of a job to its points."""
        self._points_seen: set[tuple[str, str, int]] = set()
        self._last_order = 0

    def append(self, entries: tuple[Entry, ...]) -> None:
        """See `History.append`."""
        ready = [normal(entry) for entry in entries]
        with self._lock:
            for entry in ready:
                there = self._by_id.get(entry.id)
                if there is not None:
                    place = there[0]
                else:
                    self._appended += 1
                    place = _Place(entry.at, self._appended, entry.id)
                    bisect.insort(self._places, place)
                self._by_id[entry.id] = (place, structs.replace(entry, at=place.at))

    def entries(
        self,
        *,
        types: tuple[EntryType, ...] = (),
        about: About | None = None,
        namespace: str = "",
        since: Stamp = 0.0,
        after: str = "",
        limit: int = 0,
        newest: bool = False,
    ) -> tuple[Entry, ...]:
        """See `History.entries`."""
        with self._lock:
            begin = bisect.bisect_left(self._places, _Place(since, 0, ""))
            if after:
                there = self._by_id.get(after)
                if there is None:
                    raise Expired(f"no history entry {after!r} is kept", hint="list again")
                begin = max(begin, bisect.bisect_right(self._places, there[0]))
            order = range(begin, len(self._places))
            found: list[Entry] = []
            for place in reversed(order) if newest else order:
                entry = self._by_id[self._places[place].id][1]
                if _wanted(entry, types, about, namespace):
                    found.append(entry)
                    if len(found) == limit:
                        break
        return tuple(reversed(found) if newest else found)

    def append_points(self, points: Sequence[Point]) -> int:
        """See `History.append_points`."""
        with self._lock:
            before = self._last_order
            for each in points:
                identity = (each.job.uid, each.writer, each.sequence)
                if identity not in self._points_seen:
                    self._points_seen.add(identity)
                    self._last_order += 1
                    point = point_from_row(point_to_row(each), self._last_order)
                    self._points.append(point)
                    self._points_of[point.job.uid].append(point)
            return self._last_order - before

    def points(
        self,
        namespace: str,
        *,
        job: str = "",
        uid: str = "",
        names: Sequence[str] = (),
        after: int = 0,
        limit: int = 0,
    ) -> tuple[Point, ...]:
        """See `History.points`."""
        with self._lock:
            kept = self._points_of.get(uid, []) if uid else self._points
            begin = bisect.bisect_right(kept, after, key=lambda each: each.order)
            found = tuple(
                each
                for each in kept[begin:]
                if each.job.namespace == namespace
                and job in ("", each.job.name)
                and (not names or each.name in names)
            )
        return found[:limit] if limit else found

    def jobs_with_points(self, after: int) -> tuple[int, tuple[JobKey, ...]]:
        """See `History.jobs_with_points`."""
        with self._lock:
            begin = bisect.bisect_right(self._points, after, key=lambda each: each.order)
            newest = {each.job: each.order for each in self._points[begin:]}
        return max(newest.values(), default=after), tuple(sorted(newest, key=newest.__getitem__))

    def trim(self, retention: Retention, now: Stamp) -> int:
        """See `History.trim`."""
        return self._trim_entries(retention, now) + self._trim_points(retention, now)

    def _trim_points(self, retention: Retention, now: Stamp) -> int:
        with self._lock:
            kept_of: defaultdict[str, int] = defaultdict(int)
            kept: list[Point] = []
            for each in reversed(self._points):
                old = each.at < now - retention.max_age_seconds
                if old or len(kept) >= retention.max_points:
                    continue
                if kept_of[each.job.uid] < retention.max_points_per_job:
                    kept_of[each.job.uid] += 1
                    kept.append(each)
            dropped = len(self._points) - len(kept)
            self._points = kept[::-1]
            self._points_of = defaultdict(list)
            for each in self._points:
                self._points_of[each.job.uid].append(each)
            self._points_seen = {(each.job.uid, each.writer, each.sequence) for each in kept}
        return dropped

    def _trim_entries(self, retention: Retention, now: Stamp) -> int:
        with self._lock:
            kept_of: defaultdict[About, int] = defaultdict(int)
            oldest = now - retention.max_age_seconds
            kept: list[_Place] = []
            for place in reversed(self._places):
                about = self._by_id[place.id][1].about
                if place.at < oldest or len(kept) >= retention.max_entries:
                    break
                if kept_of[about] < retention.max_entries_per_object:
                    kept_of[about] += 1
                    kept.append(place)
            kept.reverse()
            dropped = len(self._places) - len(kept)
            self._places = kept
            self._by_id = {place.id: self._by_id[place.id] for place in kept}
        return dropped

    def close(self) -> None:
        """See `History.close`; what is there stays readable."""


class MemoryLogs:
    """See `shoal.history.base.Logs`. Keeps everything until it is trimmed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: dict[LogKey, list[LogChunk]] = {}

    def keys(
        self,
        namespace: str,
        job: str,
        job_uid: str = "",
        *,
        role: str = "",
        index: int | None = None,
    ) -> tuple[LogKey, ...]:
        """See `Logs.keys`."""
        with self._lock:
            uids = {key.job_uid: age for age, key in enumerate(reversed(self._logs))}
            found = [
                key
                for key in self._logs
                if (key.namespace, key.job) == (namespace, job)
                and (not job_uid or key.job_uid == job_uid)
                and (not role or key.role == role)
                and (index is None or key.index == index)
            ]
        found.sort(key=lambda key: (-uids[key.job_uid], key.role, key.index, key.incarnation))
        return tuple(found)

    def read(
        self,
        key: LogKey,
        *,
        offset: int = 0,
        since: Stamp = 0.0,
        tail_lines: int = 0,
        chunk_bytes: int = 256 * 1024,
    ) -> Iterator[LogChunk]:
        """See `Logs.read`."""
        with self._lock:
            chunks = tuple(self._logs.get(key, ()))
        if tail_lines > 0:
            offset = max(offset, _tail_offset(b"".join(chunk.data for chunk in chunks), tail_lines))
        for chunk in chunks:
            skipped = max(0, offset - chunk.offset)
            if chunk.at >= since:
                for begin in range(skipped, len(chunk.data), chunk_bytes):
                    data = chunk.data[begin : begin + chunk_bytes]
                    yield LogChunk(key=key, at=chunk.at, offset=chunk.offset + begin, data=data)

    def append(self, key: LogKey, at: Stamp, data: bytes) -> None:
        """See `Logs.append`."""
        with self._lock:
            chunks = self._logs.setdefault(key, [])
            offset = chunks[-1].offset + len(chunks[-1].data) if chunks else 0
            if data:
                chunks.append(LogChunk(key=key, at=at, offset=offset, data=data))

    def forget(self, namespace: str, job_uid: str) -> None:
        """See `Logs.forget`."""
        self._keep(lambda key: (key.namespace, key.job_uid) != (namespace, job_uid))

    def trim(self, max_bytes: int, max_age_seconds: float, now: Stamp) -> int:
        """See `Logs.trim`; every log counts as ended."""
        with self._lock:
            sizes = {key: sum(len(c.data) for c in chunks) for key, chunks in self._logs.items()}
            last = {key: chunks[-1].at if chunks else 0.0 for key, chunks in self._logs.items()}
        total, gone = sum(sizes.values()), set[LogKey]()
        for key in sorted(sizes, key=lambda key: last[key]):
            if total > max_bytes or now - last[key] > max_age_seconds:
                gone.add(key)
                total -= sizes[key]
        self._keep(lambda key: key not in gone)
        return sum(sizes[key] for key in gone)

    def _keep(self, wanted: Callable[[LogKey], bool]) -> None:
        with self._lock:
            self._logs = {key: chunks for key, chunks in self._logs.items() if wanted(key)}


class _Place(NamedTuple):
    """Where an entry is in the order of all."""

    at: Stamp
    order: int
    id: str


def _wanted(entry: Entry, types: tuple[EntryType, ...], about: About | None, namespace: str) -> bool:
    if types and entry.type not in types:
        return False
    if namespace and entry.about.namespace != namespace:
        return False
    if about is None:
        return True
    mine = entry.about
    if mine.kind != about.kind or (about.uid and mine.uid != about.uid):
        return False
    if about.name:
        return (mine.namespace, mine.name) == (about.namespace, about.name)
    return not about.namespace or mine.namespace == about.namespace


def _tail_offset(data: bytes, lines: int) -> int:
    position = len(data) - 1 if data.endswith(b"\n") else len(data)
    for _ in range(lines):
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            return 0
    return position + 1
