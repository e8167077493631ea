"""The section of `docs/benchmarks.md`: goals, misses, systems, remarks, and when each was measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bench.elastic.jobs.job import REPOSITORY
from bench.elastic.misses import explain
from bench.elastic.report import System, merge
from bench.elastic.results import Result
from bench.row import table

__all__ = ["text", "write"]

_BEGIN = "<!-- bench.elastic: written by `python -m bench.elastic --write` -->"
_END = "<!-- bench.elastic: end -->"


def text(results: Sequence[Result]) -> str:
    """Markdown: machine and versions, goals, misses, systems, remarks, and when each was measured."""
    told = list(dict.fromkeys(f"{each.machine}; {each.versions}" for each in results))
    parts = [f"{line}." for line in told]
    found = merge([each.report for each in results])
    if found.rows:
        missed = [row for row in found.rows if not row.met]
        met = f"{len(found.rows) - len(missed)} of {len(found.rows)} rows meet their goals."
        parts += [table(found.rows), met]
        if missed:
            parts.append("\n".join(explain(missed)))
    if found.systems:
        parts.append(_systems(found.systems))
    return "\n\n".join([*parts, *found.remarks, _runs(results)]) + "\n"


def write(shown: str, path: Path = REPOSITORY / "docs" / "benchmarks.md") -> None:
    """Put the text in place of the section that an earlier run wrote, or at the page's end."""
    page = path.read_text()
    section = f"{_BEGIN}\n{_without_places(shown)}{_END}\n"
    if _BEGIN in page:
        before, _, rest = page.partition(_BEGIN)
        _, found, after = rest.partition(f"{_END}\n")
        if not found:
            raise ValueError(f"{path}: the section has no end mark")
        path.write_text(before + section + after)
        return
    path.write_text(f"{page.rstrip()}\n\n## Elastic training\n{section}")


def _without_places(shown: str) -> str:
    """Where things were kept on the machine that measured is of no use to a reader."""
    shown = re.sub(r" --(results|folder) [^ `]+", "", shown)
    return re.sub(r"--peers [^ `]+", "--peers FOLDER", re.sub(r" \(/[^)]*\)", "", shown))


def _runs(results: Sequence[Result]) -> str:
    lines = [
        [
            each.name, each.when, each.commit, f"{each.seconds:.0f} s",
            f"{each.load[0]:.1f}, {each.load[1]:.1f}", f"`{each.command}`",
        ]
        for each in results
    ]  # fmt: skip
    return _table(
        ["measurement", "begun, UTC", "commit", "took", "load before, after", "command"], lines
    )


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
    return _table(head, lines)


def _table(head: list[str], lines: list[list[str]]) -> str:
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
