"""History: what happened, kept after those it happened to are gone. The rules are the contract.

Entries belong to an object, named by (kind, namespace, name, uid): a job of the same name later has
another uid and another history. Entries come back in the order of their stamps, those with equal
stamps in the order of appending.

**Appending** is idempotent by the entry's `id`: the same id again replaces the entry (to raise a
count, to add a task's end) but for its stamp: it keeps its place, so that `after` misses nothing.
`append` never waits for a disk or another machine: it returns at once, what it took is seen by
`entries` from then on, and is on disk within a tenth of a second and after `close`. A process killed
before that loses it: nothing is decided on entries. When the storage fails for so long
that the bound on what may wait is reached, entries are dropped, and one of reason `EntriesDropped`
says how many.

**Texts** may hold anything: NUL and lone surrogates are replaced, messages longer than
`MESSAGE_LIMIT` are cut and say so. A `value` that is not a number comes back as None.

**Metric points** are apart from entries: numbers that the tasks of a job report, one row each. A
point is on disk when `append_points` returns, and the same point again (its writer and sequence) is
ignored, so that a batch may be sent twice. `order` rises with every point that is kept, over all jobs,
and no point becomes visible behind a higher one; search algorithms read points in this order.

**Retention** (`trim`) drops the oldest first and says how many it dropped, points included.

Thread-safe. Logs are apart (`Logs`): bytes, not rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, Protocol

from shoal.objects.meta import Part, Stamp

MESSAGE_LIMIT = 16_384
"""Characters of a message that are kept."""

EntryType = Literal["event", "attempt", "usage", "metric", "decision", "audit"]


class About(Part, frozen=True, kw_only=True):
    """The object that an entry belongs to. `uid` empty matches any (reading only)."""

    kind: str
    namespace: str
    name: str
    uid: str = ""


class Entry(Part, frozen=True, kw_only=True):
    """One thing that happened.

    `event`: reason, message, severity, and `actor` for a write by a person. `attempt`: one task's
    start and end, exit code, node. `usage`: CPU and memory of a task at its end. `metric`: `reason`
    is the metric's name, `value` its value, `labels` in `data`. `decision`: a plan's step for the
    object, with its evidence in `data`. `audit`: one write through the API; `reason` is the verb, `data`
    has `actor` and the SHA-256 of the object `before` and `after` (absent: there was or is none).
    """

    id: str
    type: EntryType
    about: About
    at: Stamp
    reason: str = ""
    message: str = ""
    severity: Literal["Normal", "Warning"] = "Normal"
    count: int = 1
    """Equal events close together are one entry with a count."""
    value: float | None = None
    data: dict[str, Any] = {}


class JobKey(Part, frozen=True, kw_only=True):
    """A job of a name; a later one of the same name has another uid."""

    namespace: str
    name: str
    uid: str


class Point(Part, frozen=True, kw_only=True):
    """A metric point: one value of a metric of a job. (`writer`, `sequence`) identifies it among the
    points of its job; `writer` is a process of a task, or the collector that found it."""

    job: JobKey
    name: str
    value: float
    """NaN and infinities are kept."""
    at: Stamp
    step: int | None = None
    role: str = ""
    index: int = 0
    incarnation: int = 0
    writer: str
    sequence: int
    order: int = 0
    """Given by `append_points`."""


class Retention(Part, frozen=True, kw_only=True):
    """How much is kept; the oldest goes first."""

    max_age_seconds: float = 30 * 86400.0
    max_entries_per_object: int = 10_000
    max_entries: int = 2_000_000
    max_points_per_job: int = 100_000
    max_points: int = 5_000_000


class History(Protocol):
    """Entries; see the module's docstring for the rules."""

    def append(self, entries: tuple[Entry, ...]) -> None:
        """Add entries, all or none; see **Appending**."""

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
        """Entries in order, stamped `since` or later; `after` is an entry's id to continue from,
        `newest` takes the last `limit` instead of the first (0: no limit). `about` without a name is
        all objects of its kind, in all namespaces where its own is empty.

        Raises:
            Expired: the entry that `after` names is not there (any more).
            Unavailable: the storage does not answer.
        """
        ...

    def append_points(self, points: Sequence[Point]) -> int:
        """Keep metric points, all or none; how many of them were not there yet. On disk on return.

        Raises:
            Unavailable: the storage does not answer; the same call again is safe.
        """
        ...

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
        """Points of a job, by its name, its uid or both, in their order: those behind the order
        `after`, and of the metrics `names` where any is given (`limit` 0: all).

        Raises:
            Unavailable: the storage does not answer.
        """
        ...

    def jobs_with_points(self, after: int) -> tuple[int, tuple[JobKey, ...]]:
        """The highest order there is, and the jobs that have points behind the order `after`.

        Raises:
            Unavailable: the storage does not answer.
        """
        ...

    def trim(self, retention: Retention, now: Stamp) -> int:
        """Drop what is over the bounds, the oldest first; how many went."""
        ...

    def close(self) -> None:
        """Let go of files and connections; idempotent."""


class LogKey(Part, frozen=True, kw_only=True):
    """Identifies a log: one incarnation of one task."""

    namespace: str
    job: str
    job_uid: str
    role: str
    index: int
    incarnation: int


class LogChunk(Part, frozen=True, kw_only=True):
    """Bytes of a log; `at` is when its first byte was written, `offset` its place in the whole log."""

    key: LogKey
    at: Stamp
    offset: int
    data: bytes


class Logs(Protocol):
    """Logs of tasks that run and of tasks that have ended, read the same way. Thread-safe."""

    def keys(
        self,
        namespace: str,
        job: str,
        job_uid: str = "",
        *,
        role: str = "",
        index: int | None = None,
    ) -> tuple[LogKey, ...]:
        """The logs there are: those of an earlier job of this name first, then by role and index, and
        the oldest incarnation first. Without `job_uid`, of all jobs that had the name."""
        ...

    def read(
        self,
        key: LogKey,
        *,
        offset: int = 0,
        since: Stamp = 0.0,
        tail_lines: int = 0,
        chunk_bytes: int = 256 * 1024,
    ) -> Iterator[LogChunk]:
        """What is kept from `offset` on, written at `since` or later (to a tenth of a second, never
        less than asked), and of the last `tail_lines` lines (0: all); what is there now, and nothing
        for a log that is not there. A gap (rotated away, or the disk was full) is a jump in `offset`.
        To follow, read again from the end of the last chunk. A chunk has at most `chunk_bytes` bytes;
        between two chunks no more than that is held, and no file is open."""
        ...

    def append(self, key: LogKey, at: Stamp, data: bytes) -> None:
        """Add to a log that no supervisor writes (other clusters' logs)."""

    def forget(self, namespace: str, job_uid: str) -> None:
        """Drop all logs of a job."""

    def trim(self, max_bytes: int, max_age_seconds: float, now: Stamp) -> int:
        """Drop ended logs, those last written to first, beyond the bounds; how many bytes went."""
        ...
