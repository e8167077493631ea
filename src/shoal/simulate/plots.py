"""Pictures of runs: for looking at what a table only sums up.

A picture per workload: GPUs in use and jobs waiting over time, the part of jobs done within a time, a
line per policy in each; and for each policy every job as a bar whose darkness is its size.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

from shoal.simulate.errors import BadInput
from shoal.simulate.referee.engine import Run

__all__ = ["Gallery"]

_WIDTH, _HEIGHT = 14.0, 3.0


class Gallery:
    """A folder with a picture for each workload and a page, `index.html`, that shows them all."""

    def __init__(self, folder: Path) -> None:
        """The folder is made. Raises `BadInput` where that cannot be, or without matplotlib."""
        self._pyplot = _pyplot()
        self._folder = folder
        self._parts = ["<!doctype html><meta charset=utf-8><title>Scheduling policies</title>", _STYLE]
        with _naming(folder):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def page(self) -> Path:
        """The page."""
        return self._folder / "index.html"

    def add(self, workload: str, runs: Mapping[str, Run], table: Sequence[Sequence[str]]) -> None:
        """Draw the runs of one workload, by policy, under their table, titles first. Raises
        `BadInput` where it cannot be written."""
        picture = self._folder / f"{workload}.png"
        with _naming(picture):
            self._draw(picture, workload, runs)
        self._parts.append(f"<h2>{escape(workload)}</h2><table>")
        for at, row in enumerate(table):
            cell = "th" if at == 0 else "td"
            self._parts.append("<tr>" + "".join(f"<{cell}>{escape(each)}" for each in row))
        source, name = quote(picture.name), escape(workload, quote=True)
        self._parts.append(f'</table><img src="{source}" alt="{name}">')
        with _naming(self.page):
            self.page.write_text("\n".join(self._parts) + "\n")

    def _draw(self, path: Path, workload: str, runs: Mapping[str, Run]) -> None:
        rows = 2 + len(runs)
        figure, axes = self._pyplot.subplots(
            rows, 1, figsize=(_WIDTH, _HEIGHT * rows), layout="constrained"
        )
        try:
            figure.suptitle(workload)
            end = max(run.makespan for run in runs.values())
            _over_time(axes[0], runs, end)
            _done_within(axes[1], runs)
            for axis, (policy, run) in zip(axes[2:], runs.items(), strict=True):
                _jobs(axis, policy, run, end)
            figure.savefig(path, dpi=100)
        finally:
            self._pyplot.close(figure)


@contextmanager
def _naming(path: Path) -> Generator[None]:
    """What cannot be written is named."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}") from error


_STYLE = (
    "<style>body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}"
    "td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}img{max-width:100%}</style>"
)


def _pyplot() -> Any:
    try:
        import_module("matplotlib").use("Agg")
        return import_module("matplotlib.pyplot")
    except ImportError as error:
        raise BadInput("plots need matplotlib", hint="pip install 'shoal[simulate]'") from error


def _over_time(axis: Any, runs: Mapping[str, Run], end: float) -> None:
    waiting = axis.twinx()
    for number, (policy, run) in enumerate(runs.items()):
        times = [at / 3600 for at, _, _ in run.busy]
        colour = f"C{number}"
        axis.step(times, [used for _, used, _ in run.busy], where="post", label=policy, color=colour)
        waiting.step(times, [n for _, _, n in run.busy], where="post", linestyle=":", color=colour)
    axis.set(ylabel="GPUs in use", xlabel="hours", xlim=(0, end / 3600))
    waiting.set_ylabel("jobs waiting (dotted)")
    axis.legend(loc="upper right")


def _done_within(axis: Any, runs: Mapping[str, Run]) -> None:
    for policy, run in runs.items():
        times = sorted(job.lasted for job in run.jobs)
        parts = [(at + 1) / len(times) for at in range(len(times))]
        axis.step(times, parts, where="post", label=policy)
    axis.set(xscale="log", xlabel="seconds from submission to completion", ylabel="part of jobs")
    axis.grid(visible=True, alpha=0.3)
    axis.legend(loc="lower right")


def _jobs(axis: Any, policy: str, run: Run, end: float) -> None:
    most = sum(run.cluster.capacity)
    for lane, job in enumerate(run.jobs):
        stops = [at for at, _ in job.history[1:]] + [job.submission.time + job.lasted]
        waited = job.history[0][0] if job.history else stops[-1]
        axis.hlines(lane, job.submission.time / 3600, waited / 3600, color="tab:red", linewidth=0.6)
        for (begin, size), stop in zip(job.history, stops, strict=True):
            colour = str(0.85 * (1 - (size / most) ** 0.4)) if size else "tab:red"
            axis.hlines(lane, begin / 3600, stop / 3600, color=colour, linewidth=1.5)
    axis.set(title=f"{policy}: jobs, darker with more GPUs; red: waits", xlabel="hours")
    axis.set(xlim=(0, end / 3600), ylabel="job")
    axis.invert_yaxis()
