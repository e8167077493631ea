"""Values drawn with characters, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["number", "sparkline"]

_BARS = "▁▂▃▄▅▆▇█"
_SPARKLINE_WIDTH = 24


def number(value: float | None) -> str:
    """At most six digits; `nan` for a value that is no finite number."""
    return "nan" if value is None else f"{value:.6g}"


def sparkline(values: Sequence[float | None], width: int = _SPARKLINE_WIDTH) -> str:
    """A line of bars, at most `width`; each is the mean of a part of the values, a space where it has
    none that is finite."""
    count = min(width, len(values))
    parts = [values[at * len(values) // count : (at + 1) * len(values) // count] for at in range(count)]
    means = [_mean([value for value in part if value is not None]) for part in parts]
    known = [mean for mean in means if mean is not None]
    if not known:
        return " " * count
    least, span = min(known), max(known) - min(known)
    return "".join(
        " " if mean is None else _BARS[round((mean - least) / span * (len(_BARS) - 1)) if span else 3]
        for mean in means
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
