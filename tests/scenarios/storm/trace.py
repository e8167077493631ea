"""What happened in a storm, as it was written down by those who cannot be wrong about it: every version
of every job from the store's own log, every end of every task from the ledgers of the nodes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import msgspec

from shoal.cluster.base import Outcome
from shoal.cluster.local.home import Home
from shoal.cluster.local.ledger import Progress as Recorded
from shoal.objects import codec
from shoal.objects.job import Job
from tests.scenarios.storm.progress import Slot

__all__ = ["End", "JobTrace", "Tape", "Version", "read_ends"]


_SINCE = "SELECT revision, at, kind, document FROM store_events WHERE revision > ? ORDER BY revision"


class Version(msgspec.Struct, frozen=True):
    """A job as it was written at a moment (wall time), and the nodes that were declared lost then."""

    at: float
    job: Job
    lost: tuple[str, ...] = ()


class End(msgspec.Struct, frozen=True):
    """One start of one index, as its node recorded it; without an outcome: it had not ended."""

    job_uid: str
    node: str
    role: str
    index: int
    incarnation: int
    admitted: float
    ended: float
    outcome: Outcome | None

    @property
    def slot(self) -> Slot:
        """(role, index)."""
        return (self.role, self.index)

    @property
    def well(self) -> bool:
        """It ended by itself with exit code 0."""
        outcome = self.outcome
        return (
            outcome is not None
            and (outcome.reason, outcome.exit_code) == ("Exited", 0)
            and (outcome.stop_reason is None)
        )


class JobTrace(msgspec.Struct, frozen=True):
    """All that is known of one job."""

    versions: tuple[Version, ...]
    ends: tuple[End, ...]

    @property
    def name(self) -> str:
        """The job's."""
        return self.versions[0].job.metadata.name

    @property
    def last(self) -> Job:
        """What became of it."""
        return self.versions[-1].job


class Tape:
    """Copies the store's log while it runs, for the store keeps only a window of it."""

    def __init__(self, home: Home) -> None:
        self._path = home.store_db
        self._copied = 0
        self._versions: dict[str, list[Version]] = {}

    def copy(self) -> None:
        """Take in what has come.

        Raises:
            LookupError: the store has dropped something before it was copied.
        """
        with closing(sqlite3.connect(self._path, timeout=30.0)) as store:
            (floor,) = store.execute("SELECT floor FROM store_head").fetchone()
            if floor > self._copied:
                raise LookupError(f"the store dropped its log up to {floor} before it was copied")
            rows = store.execute(_SINCE, (self._copied,)).fetchall()
        for revision, at, kind, document in rows:
            self._copied = revision
            if kind == "Job":
                job = codec.decode(document, Job)
                self._versions.setdefault(job.metadata.uid, []).append(Version(at, job))

    def jobs(self, ends: list[End]) -> Iterator[JobTrace]:
        """The trace of each job."""
        by_job: dict[str, list[End]] = {}
        for end in ends:
            by_job.setdefault(end.job_uid, []).append(end)
        for uid, versions in self._versions.items():
            yield JobTrace(tuple(versions), tuple(by_job.get(uid, ())))


def read_ends(home: Home) -> list[End]:
    """Every start that the nodes know of, acknowledged or not."""
    found: list[End] = []
    for node in sorted(home.nodes.iterdir()):
        with closing(sqlite3.connect(node / "ledger.db", timeout=30.0)) as ledger:
            rows = ledger.execute("SELECT name, job_uid, progress FROM forgotten").fetchall()
            for name, spec, progress in ledger.execute("SELECT name, spec, progress FROM tasks"):
                rows.append((name, msgspec.json.decode(spec)["jobUid"], progress))
        found += [_end(*row) for row in rows]
    return found


def _end(name: str, job_uid: str, document: bytes) -> End:
    progress = codec.decode(document, Recorded)
    return End(
        job_uid=job_uid,
        node=progress.endpoint.node,
        role=progress.endpoint.role,
        index=progress.endpoint.index,
        incarnation=int(name.rpartition("-")[2]),
        admitted=progress.admitted,
        ended=progress.ended,
        outcome=progress.outcome,
    )
