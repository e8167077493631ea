"""What a measurement gives: rows with goals, lines per system, remarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.row import Row

__all__ = ["Report", "System", "merge"]


@dataclass(frozen=True)
class System:
    """One system in one situation: a line of the table of peers. Times in seconds."""

    situation: str
    system: str
    tries: int
    recovered: int
    median: float | None
    p95: float | None
    worst: float | None
    step: float
    remark: str
    load: float


@dataclass(frozen=True)
class Report:
    """Of one or several measurements."""

    rows: list[Row] = field(default_factory=list[Row])
    systems: list[System] = field(default_factory=list[System])
    remarks: list[str] = field(default_factory=list[str])
    """Paragraphs: what a figure leaves out, a diff, a failure."""


def merge(reports: Sequence[Report]) -> Report:
    """All of them in one."""
    return Report(
        [row for each in reports for row in each.rows],
        [system for each in reports for system in each.systems],
        [remark for each in reports for remark in each.remarks],
    )
