"""The pictures of a search as a PNG file, by matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shoal.cli.charts import SearchData, importance
from shoal.objects.errors import Invalid


def write_figure(path: Path, data: SearchData, kinds: Sequence[str]) -> None:
    """Draw the pictures below each other into one file.

    Raises:
        Invalid: matplotlib is not installed, or the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Invalid("matplotlib is not installed", hint="pip install 'shoal[simulate]'") from error
    made: Any = Figure(figsize=(9, 4 * len(kinds)), layout="constrained")
    FigureCanvasAgg(made)
    axes: Any = made.subplots(len(kinds), squeeze=False)
    for kind, (axis,) in zip(kinds, axes, strict=True):
        _DRAW[kind](axis, data)
    try:
        made.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise Invalid(f"{path} cannot be written: {error.strerror}") from error


def _history(axis: Any, data: SearchData) -> None:
    axis.scatter(data.numbers, data.first, s=14, label="trial")
    axis.step(data.numbers, data.running_best, where="post", color="C3", label="best so far")
    axis.set(xlabel="trial", ylabel=data.metrics[0], title=data.title)
    axis.legend()


def _parallel(axis: Any, data: SearchData) -> None:
    low, high = min(data.first), max(data.first)
    order = sorted(range(len(data.numbers)), key=lambda at: data.first[at], reverse=data.minimize[0])
    for at in order:  # the best are drawn last
        places = [each.places[at] for each in data.parameters]
        share = (data.first[at] - low) / (high - low) if high > low else 1.0
        merit = 1 - share if data.minimize[0] else share
        gaps = [float("nan") if place is None else place for place in places]
        axis.plot(gaps, color=(merit, 0.2, 1 - merit), alpha=0.15 + 0.75 * merit, marker=".")
    axis.set_xticks(range(len(data.parameters)), [each.name for each in data.parameters])
    axis.set_yticks([])
    for at, each in enumerate(data.parameters):
        axis.annotate(
            each.low, (at, 0), ha="center", va="top", xytext=(0, -4), textcoords="offset points"
        )
        axis.annotate(
            each.high, (at, 1), ha="center", va="bottom", xytext=(0, 4), textcoords="offset points"
        )
    axis.set(title=f"parameters (red: better {data.metrics[0]})", ylim=(-0.15, 1.15))


def _importance(axis: Any, data: SearchData) -> None:
    found = importance(data)[::-1]
    axis.barh([name for name, _ in found], [value for _, value in found])
    axis.set(xlim=(0, 1), title=f"part of the variance of {data.metrics[0]} explained alone")


def _pareto(axis: Any, data: SearchData) -> None:
    front = [number in data.best for number in data.numbers]
    for wanted, label, color in ((False, "trial", "C0"), (True, "Pareto front", "C3")):
        points = [value for value, best in zip(data.values, front, strict=True) if best is wanted]
        axis.scatter([p[0] for p in points], [p[1] for p in points], s=18, label=label, color=color)
    axis.set(xlabel=data.metrics[0], ylabel=data.metrics[1], title=data.title)
    axis.legend()


_DRAW: dict[str, Callable[[Any, SearchData], None]] = {
    "history": _history,
    "parallel": _parallel,
    "importance": _importance,
    "pareto": _pareto,
}
