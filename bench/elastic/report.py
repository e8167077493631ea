"""What a measurement gives: rows with goals, lines per system, remarks; and where they are shown."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.elastic.jobs.job import REPOSITORY
from bench.row import Row, table

__all__ = ["Report", "System", "merge", "text", "write"]

_BEGIN = "<!-- bench.elastic: written by `python -m bench.elastic --write` -->"
_END = "<!-- bench.elastic: end -->"


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


def text(report: Report, command: str, versions: str) -> str:
    """Markdown: machine and versions, goals, systems, remarks."""
    parts = [f"{time.strftime('%Y-%m-%d')}, {_machine()}, {versions}. Command: `{command}`."]
    if report.rows:
        parts.append(table(report.rows))
    if report.systems:
        parts.append(_systems(report.systems))
    return "\n\n".join([*parts, *report.remarks]) + "\n"


def write(shown: str, path: Path = REPOSITORY / "docs" / "benchmarks.md") -> None:
    """Put the text in place of the section that an earlier run wrote, or at the page's end."""
    page = path.read_text()
    section = f"{_BEGIN}\n{shown}{_END}\n"
    if _BEGIN in page:
        before, _, rest = page.partition(_BEGIN)
        _, found, after = rest.partition(f"{_END}\n")
        if not found:
            raise ValueError(f"{path}: the section has no end mark")
        path.write_text(before + section + after)
        return
    path.write_text(f"{page.rstrip()}\n\n## Elastic training\n{section}")


def _machine() -> str:
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return f"{system}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}"


def _systems(systems: Sequence[System]) -> str:
    head = ["situation", "system", "went on", "median", "p95", "worst", "step", "remark", "load"]
    lines = [
        [
            each.situation,
            each.system,
            f"{each.recovered} of {each.tries}",
            _seconds(each.median),
            _seconds(each.p95),
            _seconds(each.worst),
            f"{each.step * 1000:.1f} ms",
            each.remark,
            f"{each.load:.1f}",
        ]
        for each in systems
    ]
    widths = [max(len(line[at]) for line in [head, *lines]) for at in range(len(head))]
    shown = [head, ["-" * width for width in widths], *lines]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in shown
    )


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"
