"""What an elastic job says of itself, for people: its size over time, its pace, its recoveries."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.cli.text import duration, plural
from shoal.objects.columns import age
from shoal.objects.elastic import elastic_role
from shoal.objects.job import ElasticStatus, Job, WorldSize

__all__ = ["RECOVERY_TITLES", "elastic_lines", "recovery_rows", "sparkline"]

RECOVERY_TITLES = ["AGE", "EPOCH", "HOW", "TOOK", "MEMBERS", "LOST STEPS"]

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 40
_NAMED = 6
"""So many of the newest sizes are spelt out as well."""


def elastic_lines(job: Job, now: float) -> list[tuple[str, str]]:
    """`name: value` lines of an elastic job; none for others."""
    if job.spec.runtime != "elastic":
        return []
    role, said = elastic_role(job.spec), job.status.elastic
    bounds = f"{role.min_replicas or role.replicas} to {role.replicas}"
    if said is None:
        return [("members", f"none has reported yet, {bounds} are wanted")]
    state = f", {said.state}" if said.state else ""
    lines = [("members", f"{said.world} of {bounds}{state}")]
    if said.message:
        lines.append(("", said.message))
    end = job.status.finished or now
    if len(said.sizes) > 1:
        sizes = " > ".join(str(each.size) for each in said.sizes[-_NAMED:])
        since = duration(max(0.0, end - said.sizes[0].at))
        lines.append(("size over time", f"{sparkline(said.sizes, end)}  {sizes}, in {since}"))
    pace = f", {duration(said.step_seconds)} each" if said.step_seconds else ""
    lines.append(("step", f"{said.step}{pace}"))
    if said.goodput is not None:
        lines.append(("goodput", f"{said.goodput:.1%}"))
    lines.append(("recoveries", _recoveries(said)))
    return lines


def recovery_rows(job: Job, now: float) -> list[list[str]]:
    """The last recoveries, one row each, in the order of `RECOVERY_TITLES`."""
    said = job.status.elastic
    return [
        [
            age(each.at, now),
            str(each.epoch),
            each.how or "-",
            f"{each.seconds:.3f}s",
            str(each.world),
            str(each.lost_steps),
        ]
        for each in (said.last_recoveries if said is not None else ())
    ]


def sparkline(sizes: Sequence[WorldSize], end: float, width: int = _WIDTH) -> str:
    """The size from the first change to `end`, as bars from 0 to the largest. Each bar is the size at
    the end of its share of the time."""
    first, most = sizes[0].at, max(each.size for each in sizes)
    span = max(end - first, 1e-9)
    bars: list[str] = []
    for column in range(width):
        until = first + span * (column + 1) / width
        size = [each.size for each in sizes if each.at <= until][-1]
        bars.append(_BARS[round(size / most * (len(_BARS) - 1))] if most else _BARS[0])
    return "".join(bars)


def _recoveries(said: ElasticStatus) -> str:
    if not said.recoveries:
        return "none"
    took = duration(said.recovery_seconds)
    lost = plural(said.lost_steps, "step")
    return f"{said.recoveries}, {took} together, {lost} lost"
