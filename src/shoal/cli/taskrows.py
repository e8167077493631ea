"""A job's tasks, index by index: what runs now, and what the status remembers of what has ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from shoal.objects.job import Job, Role, RoleStatus
from shoal.objects.meta import Part, Stamp
from shoal.objects.ranges import IndexMap, IndexSet

if TYPE_CHECKING:
    from shoal.client import Entry
    from shoal.client.reports import TaskReport


class TaskRow(Part, frozen=True, kw_only=True):
    """One index of one role; also what `describe -o json` shows of it."""

    role: str
    index: int
    phase: str
    """Running and its kin while a node knows the task; then how it ended. Waiting: not placed."""
    incarnation: int
    """Which start of the index this is; the first is 1."""
    node: str = ""
    exit_code: int | None = None
    """Of the end of this incarnation; None while it runs."""
    started: Stamp = 0.0
    ended: Stamp = 0.0
    """0: it has not ended, or nothing is known of its end."""
    cpu_seconds: float = 0.0
    memory_bytes: int | None = None
    """In use now."""
    peak_memory_bytes: int | None = None
    unenforced: tuple[str, ...] = ()


def task_rows(job: Job, reports: Iterable[TaskReport], history: Iterable[Entry] = ()) -> list[TaskRow]:
    """A row per index of each role, in order. `reports` are the tasks that nodes know now, `history`
    the recorded starts, ends and usage of those that have ended."""
    rows = _rows(job, reports)
    known: dict[tuple[str, int], dict[str, Any]] = {}
    for entry in history:
        slot = (entry.data.get("role", ""), entry.data.get("index", -1))
        incarnation = entry.data.get("incarnation", 0)
        if incarnation > known.get(slot, {}).get("incarnation", 0):
            known[slot] = {}
        if incarnation >= known.get(slot, {}).get("incarnation", 0):
            known.setdefault(slot, {}).update(entry.data)
    return [_completed(row, known.get((row.role, row.index))) for row in rows]


def _completed(row: TaskRow, last: dict[str, Any] | None) -> TaskRow:
    """The row of a task that no node knows any more, with what history has of its last start."""
    if row.started or not last:
        return row
    return msgspec.structs.replace(
        row,
        incarnation=last["incarnation"],
        node=row.node or last.get("node", ""),
        started=last.get("started", 0.0),
        ended=last.get("ended", 0.0),
        cpu_seconds=last.get("cpuSeconds", 0.0),
        peak_memory_bytes=last.get("peakMemoryBytes"),
    )


def _rows(job: Job, reports: Iterable[TaskReport]) -> list[TaskRow]:
    newest: dict[tuple[str, int], TaskReport] = {}
    for report in reports:
        known = newest.get((report.role, report.index))
        if known is None or known.incarnation < report.incarnation:
            newest[report.role, report.index] = report
    statuses = {status.name: status for status in job.status.roles}
    finished = bool(job.status.finished)
    rows: list[TaskRow] = []
    for role in job.spec.roles:
        known_role = _Role(statuses.get(role.name) or RoleStatus(name=role.name))
        rows += [
            known_role.row(index, newest.get((role.name, index)), finished)
            for index in known_role.indices(job, role)
        ]
    return rows


class _Role:
    """One role's status, its maps read once."""

    def __init__(self, status: RoleStatus) -> None:
        self.name = status.name
        self.incarnations = IndexMap.parse(status.incarnations)
        self.outcomes = IndexMap.parse(status.outcomes)
        self.exit_codes = IndexMap.parse(status.exit_codes)
        self.nodes = IndexMap.parse(status.nodes)

    def indices(self, job: Job, role: Role) -> list[int]:
        """All indices worth a row: those asked for, and those left from a larger size."""
        if job.spec.array is not None:
            return list(IndexSet.parse(job.spec.array.indices))
        return sorted({*range(role.replicas), *self.nodes, *self.exit_codes})

    def row(self, index: int, report: TaskReport | None, finished: bool) -> TaskRow:
        """The row of one index."""
        code = self.exit_codes.number(index) if index in self.exit_codes else None
        if report is None:
            return TaskRow(
                role=self.name,
                index=index,
                phase=self._phase_without_task(index, finished),
                incarnation=self.incarnations.number(index, 1),
                node=self.nodes.get(index, ""),
                exit_code=code,
            )
        ended = report.outcome
        return TaskRow(
            role=self.name,
            index=index,
            phase=self.outcomes.get(index) or (report.phase if ended is None else ended.reason),
            incarnation=report.incarnation,
            node=report.node,
            exit_code=None if ended is None else ended.exit_code,
            started=report.started,
            ended=report.ended,
            cpu_seconds=report.cpu_seconds,
            memory_bytes=report.memory_bytes if ended is None else None,
            peak_memory_bytes=report.peak_memory_bytes or None,
            unenforced=report.unenforced,
        )

    def _phase_without_task(self, index: int, finished: bool) -> str:
        outcome = self.outcomes.get(index)
        if outcome:
            return outcome
        if finished:
            return "Stopped" if index in self.exit_codes else "NotStarted"
        if index in self.nodes:
            return "Unknown"  # its node is not answering
        return "Waiting"
