"""What an agent has promised and seen, durably: tasks, leased ports, and tasks that were forgotten.

A SQLite database that only its agent opens, kept whole in memory beside. Changes are staged and then
committed together, once for all that a turn of the agent's loop brings; nothing is answered, spawned
or signalled before the commit that says so. (A commit of one change costs 0.07 ms plus the disk's own
flush, within a factor of two of a bare append to a file, and a torn write is SQLite's to mend.)

A ledger that is damaged is put aside; what it held of launched tasks is rebuilt from their folders
(`recovery`), and what was only promised is asked for again.

A commit that fails, because the disk is full, leaves the last complete state: `commit` raises, and
memory is as the disk has it. Room for some hundred small changes is taken beforehand, so that on a full
disk tasks can still be stopped and their ends recorded.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec

from shoal import statefiles
from shoal.cluster.base import Outcome, StopReason, Task, TaskPhase, Usage
from shoal.objects import codec
from shoal.objects.errors import Unavailable
from shoal.objects.meta import Part, Stamp
from shoal.objects.task import Endpoint, TaskBootstrap, TaskKey, TaskSpec

FORGOTTEN_SECONDS = 3600.0
"""How long an acknowledged task's name is remembered, so that a late start does not run it again."""
FORGOTTEN_MOST = 20_000
"""How many names at most; the oldest go first."""

_SPARE_PAGES = 128
_PAGE_BYTES = 4096

_SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (
    namespace TEXT NOT NULL, name TEXT NOT NULL,
    spec BLOB NOT NULL, told BLOB, progress BLOB NOT NULL,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases (owner TEXT PRIMARY KEY, port INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS forgotten (
    namespace TEXT NOT NULL, name TEXT NOT NULL, job_uid TEXT NOT NULL, at REAL NOT NULL,
    progress BLOB, PRIMARY KEY (namespace, name)
) WITHOUT ROWID;
"""


class StopRequest(Part, frozen=True, kw_only=True):
    """That the task is to end, and why; the first reason stays, the grace may only shrink."""

    reason: StopReason
    first: Stamp
    """When it was first asked for."""
    grace_seconds: float
    at: Stamp
    """From when the grace counts."""


class Progress(Part, frozen=True, kw_only=True):
    """What changes in the life of a task."""

    endpoint: Endpoint
    admitted: Stamp
    launched: bool = False
    """From here on the task is started, whatever happens to the agent."""
    started: Stamp = 0.0
    stop: StopRequest | None = None
    outcome: Outcome | None = None
    ended: Stamp = 0.0
    unenforced: tuple[str, ...] = ()
    cpu_seconds: float = 0.0
    """At its end; as the peak below."""
    peak_memory_bytes: int = 0

    @property
    def usage(self) -> Usage | None:
        """What the task had used at its end."""
        if self.outcome is None:
            return None
        return Usage(cpu_seconds=self.cpu_seconds, peak_memory_bytes=self.peak_memory_bytes)


class Record(msgspec.Struct, kw_only=True):
    """One task in the ledger."""

    spec: TaskSpec
    progress: Progress
    bootstrap: TaskBootstrap | None = None

    @property
    def key(self) -> TaskKey:
        """Which task."""
        return self.spec.key

    @property
    def holds_capacity(self) -> bool:
        """Until its processes are gone; then it is only remembered."""
        return self.progress.outcome is None

    @property
    def can_be_taken_back(self) -> bool:
        """Until it is launched."""
        return not self.progress.launched and self.progress.outcome is None

    @property
    def phase(self) -> TaskPhase:
        """As the contract names it. A launched task is Running once its command is."""
        progress = self.progress
        if progress.outcome is not None:
            return "Ended"
        if progress.stop is not None:
            return "Terminating"
        return "Running" if progress.launched and progress.started else "Admitted"

    def task(self, idle_since: Stamp = 0.0, probed_ready: bool = False) -> Task:
        """As the contract shows it."""
        progress = self.progress
        runs = self.phase == "Running"
        return Task(
            spec=self.spec,
            phase=self.phase,
            endpoint=progress.endpoint,
            bootstrapped=progress.launched,
            ready=runs and (probed_ready or self.spec.readiness is None),
            outcome=progress.outcome,
            stop_reason=progress.stop.reason if progress.stop is not None else None,
            admitted=progress.admitted,
            started=progress.started,
            ended=progress.ended,
            idle_since=idle_since,
            unenforced=progress.unenforced,
            usage=progress.usage,
        )


class _Copy(Part, frozen=True, kw_only=True):
    """A record as it is kept in its task's folder."""

    spec: TaskSpec
    told: TaskBootstrap | None
    progress: Progress


def copy_of(record: Record) -> bytes:
    """The record as it was when the task was launched, for `taskfiles.RECORD`."""
    return codec.encode(_Copy(spec=record.spec, told=record.bootstrap, progress=record.progress))


def record_of(copy: bytes) -> Record:
    """What `copy_of` was given.

    Raises:
        ValueError: it holds something else.
    """
    found = codec.decode(copy, _Copy)
    return Record(spec=found.spec, bootstrap=found.told, progress=found.progress)


class Ledger:
    """See the module's docstring. Used by one thread."""

    def __init__(self, path: Path) -> None:
        self.tasks: dict[TaskKey, Record] = {}
        self.leases: dict[str, int] = {}
        """Owner (see `admission`) to port."""
        self.forgotten: dict[TaskKey, tuple[str, Stamp]] = {}
        """Names of acknowledged tasks, the oldest first, with their job's uid and since when."""
        path.touch(mode=0o600, exist_ok=True)
        self._staged: list[tuple[str, tuple[object, ...]]] = []
        self._database = sqlite3.connect(path, isolation_level=None)
        try:
            self._open()
        except BaseException:
            self._database.close()
            raise

    def _open(self) -> None:
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute("PRAGMA cache_size = -512")
        self._database.executescript(_SCHEMA)
        (found,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        self._take_room()
        self._load()

    @classmethod
    def open(cls, path: Path, report: Callable[[str], None]) -> Ledger:
        """The ledger of this file. One that is damaged is put aside and an empty one returned; `report`
        is given a sentence then.

        Raises:
            sqlite3.OperationalError: the file cannot be opened or written.
        """
        try:
            return cls(path)
        except sqlite3.OperationalError:
            raise
        except (sqlite3.DatabaseError, msgspec.MsgspecError, ValueError) as error:
            for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
                statefiles.put_aside(file, str(error), report)
        return cls(path)

    def put(self, record: Record) -> None:
        """A new task, or its bootstrap."""
        self.tasks[record.key] = record
        told = None if record.bootstrap is None else codec.encode(record.bootstrap)
        self._stage(
            "INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?, ?)",
            record.spec.namespace,
            record.spec.name,
            codec.encode(record.spec),
            told,
            codec.encode(record.progress),
        )

    def advance(self, record: Record, progress: Progress) -> None:
        """The task has come so far."""
        record.progress = progress
        self._stage(
            "UPDATE tasks SET progress = ? WHERE namespace = ? AND name = ?",
            codec.encode(progress),
            record.spec.namespace,
            record.spec.name,
        )

    def remove(self, record: Record) -> None:
        """The task was never launched."""
        del self.tasks[record.key]
        self._stage(
            "DELETE FROM tasks WHERE namespace = ? AND name = ?", record.spec.namespace, record.spec.name
        )

    def forget(self, record: Record, now: Stamp) -> None:
        """The task is acknowledged: all but its name, and how it ended, for diagnosis
        later, goes."""
        self.remove(record)
        self.forgotten[record.key] = (record.spec.job_uid, now)
        self.trim(now)
        self._stage(
            "INSERT OR REPLACE INTO forgotten VALUES (?, ?, ?, ?, ?)",
            record.spec.namespace,
            record.spec.name,
            record.spec.job_uid,
            now,
            codec.encode(record.progress),
        )

    def forget_job(self, namespace: str, job_uid: str) -> None:
        """The job is gone: the names of its tasks too."""
        for key, (uid, _) in list(self.forgotten.items()):
            if uid == job_uid and key.namespace == namespace:
                del self.forgotten[key]
        self._stage("DELETE FROM forgotten WHERE namespace = ? AND job_uid = ?", namespace, job_uid)

    def lease(self, owner: str, port: int) -> None:
        """The port is the owner's."""
        self.leases[owner] = port
        self._stage("INSERT OR REPLACE INTO leases VALUES (?, ?)", owner, port)

    def end_lease(self, owner: str) -> None:
        """The port is free."""
        del self.leases[owner]
        self._stage("DELETE FROM leases WHERE owner = ?", owner)

    def trim(self, now: Stamp) -> None:
        """Drop names that no start can come late for any more."""
        while self.forgotten:
            key, (_, at) = next(iter(self.forgotten.items()))
            if len(self.forgotten) <= FORGOTTEN_MOST and at > now - FORGOTTEN_SECONDS:
                return
            del self.forgotten[key]
            self._stage(
                "DELETE FROM forgotten WHERE namespace = ? AND name = ?", key.namespace, key.name
            )

    @property
    def staged(self) -> bool:
        """True when there is something to commit."""
        return bool(self._staged)

    def commit(self) -> None:
        """Make what was staged durable, all or none.

        Raises:
            Unavailable: it cannot be; memory is as it was after the last commit.
        """
        staged, self._staged = self._staged, []
        if not staged:
            return
        try:
            self._database.execute("BEGIN IMMEDIATE")
            for statement, values in staged:
                self._database.execute(statement, values)
            self._database.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            self._load()
            raise Unavailable(
                f"the node's ledger cannot be written: {error}", hint="make room on its disk"
            ) from error

    def close(self) -> None:
        """Let go of the file; what is staged is dropped."""
        self._database.close()

    def _take_room(self) -> None:
        """Have both files larger than what is in them: pages that were once written are used again."""
        self._database.execute(f"PRAGMA wal_autocheckpoint = {_SPARE_PAGES // 2}")
        (free,) = self._database.execute("PRAGMA freelist_count").fetchone()
        spare = (_SPARE_PAGES - free) * _PAGE_BYTES
        try:
            if spare > 0:
                self._database.execute("CREATE TABLE spare (bytes BLOB)")
                self._database.execute("INSERT INTO spare VALUES (zeroblob(?))", (spare,))
                self._database.execute("DROP TABLE spare")
                self._database.execute("PRAGMA wal_checkpoint")
        except sqlite3.OperationalError:
            return  # the disk is full already; what fits will fit

    def _stage(self, statement: str, *values: object) -> None:
        self._staged.append((statement, values))

    def _load(self) -> None:
        """Memory as the disk has it. Records that are known already are changed in place."""
        self._staged = []
        known, self.tasks = self.tasks, {}
        for spec, told, progress in self._database.execute("SELECT spec, told, progress FROM tasks"):
            record = Record(
                spec=codec.decode(spec, TaskSpec),
                bootstrap=None if told is None else codec.decode(told, TaskBootstrap),
                progress=codec.decode(progress, Progress),
            )
            old = known.get(record.key)
            if old is not None:
                old.progress, old.bootstrap = record.progress, record.bootstrap
                record = old
            self.tasks[record.key] = record
        self.leases = dict(self._database.execute("SELECT owner, port FROM leases"))
        rows = self._database.execute("SELECT namespace, name, job_uid, at FROM forgotten ORDER BY at")
        self.forgotten = {
            TaskKey(namespace=namespace, name=name): (uid, at) for namespace, name, uid, at in rows
        }
