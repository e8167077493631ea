"""The metric collector: reads metric points out of what the jobs of trials write.

`metricsCollector` of the trial's experiment names what is read: the tasks' output, a file, TensorBoard's
event files, or a Prometheus endpoint of a task. Nothing runs beside the tasks. A point is identified by
the place at which it stands (file and offset), so a collector that starts again reads all of it again,
and nothing is stored twice. Once the job has ended and everything is read, it counts as collected.

An endpoint is asked while its task runs, and a value that differs from the one before is a point.

Files are in the job's output folder, which its tasks write: links that lead out of it are not followed,
and only regular files are read.

Metric points for controllers: which jobs have new ones, and the points themselves.

A controller names the feed as one of its sources, as it does a cache: it gets the keys of the jobs with
points that have come since the last sync, at once when this server took them and within `POLL_SECONDS`
when another did. Level-triggered: after a restart every job with kept points comes once more.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.control.cache import ObjectCache
from shoal.control.runner import Key, Source
from shoal.control.task_cache import TaskCache
from shoal.history.base import History, JobKey, Logs, Point
from shoal.objects.experiment import EXPERIMENT_LABEL, TRIAL_LABEL, Experiment, MetricsCollector
from shoal.objects.job import FINISHED, Job
from shoal.objects.task import Endpoint
from shoal.objects.trial import ENDED, Trial
from shoal.search.metric_formats import (
    Found,
    event_records,
    points_of_event,
    points_of_line,
    points_of_text,
)

POLL_SECONDS = 1.0
Outputs = Callable[[str, str], "Path | None"]
"""The output folder of a job, by its namespace and uid; None where this machine has none."""

_POLL_SECONDS = 0.3
_PASS_BYTES = 4 * 2**20
"""Of one file in one reconcile, so that one job does not hold up the others."""
_LONGEST_LINE = 64 * 1024
_POINTS_PER_LINE = 1024
_SCRAPE_SECONDS = 1.0
"""For the whole answer of an endpoint: a slow one must not hold up the other trials."""


class MetricFeed:
    """See `shoal.control.runner.Cache`. `on_change` callbacks get `(None, JobKey)`; without a history
    there are never points."""

    name = "metrics"

    def __init__(self, history: History | None) -> None:
        self._history = history
        self._order = 0
        self._synced = False
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._callbacks: list[Callable[[Any, Any], None]] = []
        self._announced: list[JobKey] = []
        self._is_collected: Callable[[str], bool] = lambda uid: True

    @property
    def synced(self) -> bool:
        """True after the first sync."""
        return self._synced

    @property
    def ready(self) -> threading.Event:
        """Set it when points have been appended."""
        return self._ready

    def sync(self) -> bool:
        """Call back for each job with new points; True if there was one.

        Raises:
            Unavailable: the history does not answer.
        """
        self._ready.clear()
        jobs: Sequence[JobKey] = ()
        if self._history is not None:
            self._order, jobs = self._history.jobs_with_points(self._order)
        self._synced = True
        with self._lock:
            jobs, self._announced = [*jobs, *self._announced], []
        for job in jobs:
            for callback in self._callbacks:
                callback(None, job)
        return bool(jobs)

    def sync_after(self) -> float:
        """See `Cache.sync_after`."""
        return POLL_SECONDS

    def on_change(self, callback: Callable[[Any, Any], None]) -> None:
        """See `Cache.on_change`."""
        self._callbacks.append(callback)

    def close(self) -> None:
        """Nothing is held."""

    def points(self, namespace: str, job_uid: str, since: int = 0) -> tuple[Point, ...]:
        """The points of a job behind the order `since`, in their order.

        Raises:
            Unavailable: the history does not answer.
        """
        if self._history is None:
            return ()
        return self._history.points(namespace, uid=job_uid, after=since)

    def complete(self, namespace: str, job_uid: str) -> bool:
        """Whether everything that an ended job has written is kept: no point will follow. A program's
        reports are kept before it ends, so it depends on the collector alone."""
        return self._is_collected(job_uid)

    def collected_by(self, is_collected: Callable[[str], bool]) -> None:
        """Ask this whether all that an ended job (its uid) has written is collected."""
        self._is_collected = is_collected

    def announce(self, job: JobKey) -> None:
        """Have the callbacks called for a job at the next sync, and sync soon."""
        with self._lock:
            self._announced.append(job)
        self._ready.set()


@dataclass
class _Progress:
    """How far each file or log of a job has been read."""

    offsets: dict[str, int] = field(default_factory=dict[str, int])
    scraped: dict[str, str] | None = None
    """Metric to its newest value at the endpoint; None: not known since a restart."""


class MetricCollector:
    """See the module. `reconcile` runs on one thread per job."""

    name = "metric-collector"

    def __init__(
        self,
        jobs: ObjectCache[Job],
        experiments: ObjectCache[Experiment],
        trials: ObjectCache[Trial],
        feed: MetricFeed,
        history: History | None,
        logs: Logs | None,
        outputs: Outputs,
        tasks: TaskCache,
    ) -> None:
        self._jobs = jobs
        self._tasks = tasks
        self._experiments = experiments
        self._trials = trials
        self._feed = feed
        self._history = history
        self._logs = logs
        self._outputs = outputs
        self._progress: dict[str, _Progress] = {}
        self._names: dict[str, Key] = {}
        """Of jobs of trials, by uid."""
        self._finished: set[str] = set()
        jobs.on_change(self._follow)
        feed.collected_by(self.is_collected)

    def sources(self) -> Sequence[Source]:
        """Jobs of trials."""
        return (Source(self._jobs, _key_of_trial),)

    def is_collected(self, job_uid: str) -> bool:
        """Whether nothing more will be collected from an ended job."""
        if job_uid in self._finished:
            return True
        job = self._jobs.get(self._names.get(job_uid, ("", "")))
        return job is None or job.metadata.uid != job_uid or self._rules(job) is None

    def reconcile(self, key: Key, now: float) -> float | None:
        """Store the points that have been written since the last call."""
        job = self._jobs.get(key)
        rules = self._rules(job) if job is not None else None
        if job is None or rules is None or self._history is None:
            return None
        uid = job.metadata.uid
        if uid in self._finished or self._trial_ended(job):
            self._progress.pop(uid, None)
            return None
        ended = job.status.phase in FINISHED
        progress = self._progress.setdefault(uid, _Progress())
        experiment, collector = rules
        names = _names(experiment, collector)
        more = False
        if collector.kind == "PrometheusMetric":
            self._scrape(job, collector, progress, names, now)
        for text in self._texts(job, collector, progress, ended):
            points = text.points(collector, names)
            self._history.append_points([_point(job, text, sequence, f, now) for sequence, f in points])
            progress.offsets[text.name] = text.end
            more = more or text.more
            if points:
                self._feed.ready.set()
        if more:
            return 0.0
        if not ended:
            return _POLL_SECONDS
        self._finished.add(uid)
        self._progress.pop(uid, None)
        self._feed.announce(_job_key(job))
        return None

    def _scrape(
        self,
        job: Job,
        collector: MetricsCollector,
        progress: _Progress,
        names: frozenset[str],
        now: float,
    ) -> None:
        """Store the values at the endpoint of the job's running task that have changed."""
        uid = job.metadata.uid
        reachable = [
            (task.spec, task.endpoint)
            for task in self._tasks.of_job(uid)
            if task.phase == "Running"
            and task.endpoint is not None
            and collector.port in task.endpoint.ports
        ]
        if self._history is None or not reachable:
            return
        spec, endpoint = min(reachable, key=lambda each: (each[0].index, each[0].role))
        if progress.scraped is None:
            kept = self._feed.points(job.metadata.namespace, uid)
            progress.scraped = {p.name: repr(p.value) for p in kept if p.writer.startswith("scrape/")}
        text = _Text(f"scrape/{spec.role}-{spec.index}-{spec.incarnation}", 0, b"")
        text.of(spec.role, spec.index, spec.incarnation)
        sequence = int(now * 1000) * _POINTS_PER_LINE
        points: list[Point] = []
        for found in points_of_text(_answer(endpoint, collector), names):
            if progress.scraped.get(found.name) != repr(found.value):
                progress.scraped[found.name] = repr(found.value)
                points.append(_point(job, text, sequence + len(points), found, now))
        if points:
            self._history.append_points(points)
            self._feed.ready.set()

    def _rules(self, job: Job) -> tuple[Experiment, MetricsCollector] | None:
        """The experiment of the job and what it collects; None: nothing."""
        name = job.metadata.labels.get(EXPERIMENT_LABEL, "")
        experiment = self._experiments.get((job.metadata.namespace, name)) if name else None
        if experiment is None or experiment.spec.metrics_collector.kind == "none":
            return None
        return experiment, experiment.spec.metrics_collector

    def _trial_ended(self, job: Job) -> bool:
        """Whether the trial needs no more points, as all do that had ended before a restart."""
        meta = job.metadata
        trial = self._trials.get((meta.namespace, meta.labels.get(TRIAL_LABEL, "")))
        return trial is not None and trial.status.phase in ENDED

    def _texts(
        self, job: Job, collector: MetricsCollector, progress: _Progress, ended: bool
    ) -> Iterator[_Text]:
        meta = job.metadata
        if collector.kind == "StdOut":
            yield from self._output(job, progress, ended)
            return
        if collector.kind == "PrometheusMetric":
            return
        folder = self._outputs(meta.namespace, meta.uid)
        if folder is None:
            return
        for path in _files(folder, collector):
            name = f"file/{path.relative_to(folder)}"
            yield _read(folder, path, name, progress.offsets.get(name, 0), ended)

    def _output(self, job: Job, progress: _Progress, ended: bool) -> Iterator[_Text]:
        if self._logs is None:
            return
        meta = job.metadata
        for key in self._logs.keys(meta.namespace, meta.name, meta.uid):
            name = f"log/{key.role}-{key.index}-{key.incarnation}"
            data, start, more = b"", progress.offsets.get(name, 0), False
            for chunk in self._logs.read(key, offset=start):
                if chunk.offset != start + len(data):  # rotated away: go on behind the gap
                    if data:
                        more = True
                        break
                    start = chunk.offset
                data += chunk.data
                more = len(data) >= _PASS_BYTES
                if more:
                    break
            text = _Text(name, start, data, more, last=ended and not more)
            yield text.of(key.role, key.index, key.incarnation)

    def _follow(self, old: Job | None, new: Job | None) -> None:
        job = new or old
        if job is None or EXPERIMENT_LABEL not in job.metadata.labels:
            return
        uid = job.metadata.uid
        if new is not None:
            self._names[uid] = new.key
        else:
            self._names.pop(uid, None)
            self._finished.discard(uid)
            self._progress.pop(uid, None)


@dataclass
class _Text:
    """A part of a file or log, from `start` on; `last`: nothing follows, so that a line without an end
    is complete."""

    name: str
    start: int
    data: bytes
    more: bool = False
    last: bool = False
    end: int = 0
    """Where reading goes on; set by `points`."""
    folder: str = ""
    role: str = ""
    index: int = 0
    incarnation: int = 0

    def of(self, role: str, index: int, incarnation: int) -> _Text:
        """Note the task that wrote it."""
        self.role, self.index, self.incarnation = role, index, incarnation
        return self

    def points(self, collector: MetricsCollector, names: frozenset[str]) -> list[tuple[int, Found]]:
        """The points with the sequence number of each, which follows from its place."""
        events = collector.kind == "TensorFlowEvent"
        parts = self._events(names) if events else self._lines(collector, names)
        return [
            (place * _POINTS_PER_LINE + at, found)
            for place, several in parts
            for at, found in enumerate(several[:_POINTS_PER_LINE])
        ]

    def _lines(
        self, collector: MetricsCollector, names: frozenset[str]
    ) -> Iterator[tuple[int, list[Found]]]:
        as_json = collector.kind == "File" and collector.format == "JSON"
        complete = len(self.data) if self.last else self.data.rfind(b"\n") + 1
        if not complete and len(self.data) >= _LONGEST_LINE:
            complete = len(self.data)  # no line of metrics is that long
        self.end, at = self.start + complete, self.start
        for line in self.data[:complete].splitlines(keepends=True):
            if len(line) <= _LONGEST_LINE:
                yield at, points_of_line(line, names, as_json=as_json, filters=collector.filters)
            at += len(line)

    def _events(self, names: frozenset[str]) -> Iterator[tuple[int, list[Found]]]:
        self.end = self.start
        try:
            for length, event in event_records(self.data):
                place, self.end = self.end, self.start + length
                yield place, points_of_event(event, names, self.folder)
        except ValueError:
            self.end = self.start + len(self.data)  # no event file: not read again
            self.more = False


def _answer(endpoint: Endpoint, collector: MetricsCollector) -> bytes:
    """The text at the endpoint; empty where it does not answer in time, or with an error."""
    deadline, received = time.monotonic() + _SCRAPE_SECONDS, b""
    address = endpoint.host, endpoint.ports[collector.port]
    request = f"GET {collector.path or '/metrics'} HTTP/1.0\r\nHost: {endpoint.host}\r\n\r\n"
    try:
        with socket.create_connection(address, timeout=_SCRAPE_SECONDS) as connection:
            connection.sendall(request.encode())
            while len(received) < _PASS_BYTES and (left := deadline - time.monotonic()) > 0:
                connection.settimeout(left)
                if not (data := connection.recv(65536)):
                    head, _, body = received.partition(b"\r\n\r\n")
                    return body if head.split(b" ")[1:2] == [b"200"] else b""
                received += data
    except OSError:
        return b""  # the program does not listen yet, or has ended: asked again
    return b""


def _key_of_trial(old: Job | None, new: Job | None) -> Iterable[Key]:
    return (new.key,) if new is not None and EXPERIMENT_LABEL in new.metadata.labels else ()


def _names(experiment: Experiment, collector: MetricsCollector) -> frozenset[str]:
    spec = experiment.spec
    asked = (each.metric for each in (*spec.objectives, *spec.constraints))
    return frozenset((*asked, *collector.metrics))


def _job_key(job: Job) -> JobKey:
    meta = job.metadata
    return JobKey(namespace=meta.namespace, name=meta.name, uid=meta.uid)


def _point(job: Job, text: _Text, sequence: int, found: Found, now: float) -> Point:
    return Point(
        job=_job_key(job),
        name=found.name,
        value=found.value,
        at=now if found.at is None else found.at,
        step=found.step,
        role=text.role,
        index=text.index,
        incarnation=text.incarnation,
        writer=text.name,
        sequence=sequence,
    )


def _files(folder: Path, collector: MetricsCollector) -> list[Path]:
    path = folder / collector.path
    if collector.kind == "File":
        return [path]
    found: list[Path] = []
    for parent, _, names in os.walk(path):  # links to folders are not followed
        found += [Path(parent) / name for name in names if "tfevents" in name]
    return sorted(found)


def _read(folder: Path, path: Path, name: str, start: int, ended: bool) -> _Text:
    """What the file has from `start` on; nothing where it is no regular file of the folder."""
    text = _Text(name, start, b"", folder=path.parent.name, end=start)
    if not path.resolve().is_relative_to(folder.resolve()):
        return text
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return text  # not written yet
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            text.data = os.pread(descriptor, _PASS_BYTES, start)
    finally:
        os.close(descriptor)
    text.more = len(text.data) == _PASS_BYTES
    text.last = ended and not text.more
    return text
