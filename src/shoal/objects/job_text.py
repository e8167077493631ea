"""A Job for people: what was asked for and how far it has come, as `name: value` lines; for an elastic
job also its size over time, its pace and its recoveries."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from shoal.objects.columns import age
from shoal.objects.elastic import elastic_role
from shoal.objects.job import (
    ElasticStatus,
    Job,
    NodeTime,
    Role,
    RoleTopology,
    Speed,
    Topology,
    WorldSize,
)
from shoal.objects.job_rules import named_levels
from shoal.objects.kind import Description, Section
from shoal.objects.text import cores, duration, memory, plural, stamp, starts

_LONGEST_COMMAND = 300


def describe(job: Job, now: float) -> Description:
    """See `Kind.describe`."""
    recoveries = Section("Recoveries", RECOVERY_TITLES, recovery_rows(job, now))
    return Description(lines=job_lines(job, now), sections=[recoveries])


def job_lines(job: Job, now: float) -> list[tuple[str, str]]:
    """What `describe` says before its tables."""
    spec, status, metadata = job.spec, job.status, job.metadata
    lines = [
        ("phase", _phase(job, now)),
        ("namespace", metadata.namespace),
        ("queue", f"{spec.queue}, priority {spec.priority}"),
        ("runtime", spec.runtime),
    ]
    if spec.user:
        lines.append(("user", spec.user))
    if not spec.preemptible:
        lines.append(("preemptible", "no"))
    if spec.topology is not None:
        lines.append(("topology", _levels(spec.topology)))
    if spec.speed is not None:
        lines.append(("speed", _speed(spec.speed)))
    waits = status.scheduling
    if waits.code and status.phase == "Pending":
        lines.append(("waits", f"{waits.code}: {waits.message}"))
        if waits.promised is not None:
            lines.append(("starts", starts(waits.promised, now)))
    if status.message:
        lines.append(("message", status.message))
    if status.exit_code is not None:
        decided = f", by {status.decided_by}" if status.decided_by else ""
        lines.append(("exit code", f"{status.exit_code}{decided}"))
    if spec.array is not None:
        bound = f", {spec.array.parallelism} at once" if spec.array.parallelism else ""
        lines.append(("array", f"{spec.array.indices}{bound}"))
    for at, each in enumerate(spec.after):
        met = ", met" if status.eligible or each.job in status.dependencies_met else ""
        lines.append(("" if at else "after", f"job/{each.job} ({each.on}){met}"))
    for role in spec.roles:
        lines.append((f"role {role.name}", _role(role)))
        lines.append(("", command_text(role)))
        if role.working_directory:
            lines.append(("", f"in {role.working_directory}"))
    lines += elastic_lines(job, now)
    lines.append(("restarts", _restarts(job)))
    limits = spec.limits
    if limits.wall_time is not None:
        lines.append(("wall time", limits.wall_time.text()))
    if status.node_time != NodeTime() or limits.node_hours is not None:
        lines.append(("node hours", _node_hours(job, now)))
    if limits.idle_timeout is not None:
        lines.append(("idle timeout", limits.idle_timeout.text()))
    if spec.isolation != "default":
        lines.append(("isolation", spec.isolation))
    lines.append(("created", f"{stamp(metadata.created, now)} by {metadata.submitter or 'unknown'}"))
    if status.started:
        lines.append(("started", f"{stamp(status.started, now)}, attempt {status.attempt}"))
    if status.finished:
        lasted = duration(status.finished - (status.started or metadata.created))
        lines.append(("finished", f"{stamp(status.finished, now)}, after {lasted}"))
    return lines


def command_text(role: Role) -> str:
    """The command as one would type it, cut where it is very long."""
    words = [*role.command, *role.args]
    text = shlex.join(words) if words else role.image or "(no command)"
    return text if len(text) <= _LONGEST_COMMAND else text[: _LONGEST_COMMAND - 1] + "…"


def _phase(job: Job, now: float) -> str:
    status = job.status
    asked = ""
    if not status.finished and job.spec.cancelled:
        asked = ", being cancelled"
    elif not status.finished and job.spec.suspend and status.phase != "Suspended":
        asked = ", being suspended"
    reason = f" ({status.reason})" if status.reason and status.reason != status.phase else ""
    if status.restart_after > now:
        asked += f", starts again in {duration(status.restart_after - now)}"
    if job.metadata.deleted:
        asked += f", deletion asked for {age(job.metadata.deleted, now)} ago"
    return f"{status.phase}{reason}{asked}"


def _role(role: Role) -> str:
    size = str(role.replicas)
    if role.min_replicas is not None:
        size = f"{role.min_replicas} to {role.replicas}"
    wants = [f"cpu {cores(role.resources.cpu)}"]
    if role.resources.cpu_limit is not None:
        wants.append(f"cpu limit {cores(role.resources.cpu_limit)}")
    if role.resources.memory is not None:
        wants.append(f"memory {memory(role.resources.memory)}")
    if role.resources.gpu or role.resources.gpu_share:
        wants.append(f"gpu {role.resources.gpu_share or role.resources.gpu:g}")
    if role.topology is not None and (near := _levels(role.topology)):
        wants.append(near)
    each = "each " if size != "1" else ""
    return f"{size} x {each}{', '.join(wants)}"


def _levels(topology: Topology | RoleTopology) -> str:
    """`required rack, spread node`."""
    return ", ".join(f"{field} {level}" for field, level in named_levels(topology).items())


def _speed(speed: Speed) -> str:
    """`1 to 2.4 a second with 1 to 3 tasks, 1000 in all, a change costs 20s`."""
    curve = speed.curve
    parts = ["learned"] if not curve else []
    if curve:
        parts.append(f"{curve[0]:g} to {curve[-1]:g} a second with 1 to {len(curve)} tasks")
    if speed.work is not None:
        parts.append(f"{speed.work:g} in all")
    if speed.application:
        parts.append(f"like {speed.application}")
    if speed.restart is not None:
        parts.append(f"a change costs {speed.restart.text()}")
    return ", ".join(parts)


def _node_hours(job: Job, now: float) -> str:
    used, most = job.status.node_time, job.spec.limits.node_hours
    hours = (used.node_seconds + used.nodes * max(0.0, now - used.since)) / 3600
    text = f"{hours:.2f}" if most is None else f"{hours:.2f} of {most:g}"
    return f"{text}, on {plural(used.nodes, 'node')} now" if used.nodes else text


def _restarts(job: Job) -> str:
    spec, status = job.spec.restart, job.status
    each = " of each index" if job.spec.array is not None else ""
    text = f"{status.failures} of {plural(spec.limit, 'restart')}{each} used, policy {spec.policy}"
    if status.failures > spec.limit and not each:
        text = f"all of {plural(spec.limit, 'restart')} used, policy {spec.policy}"
    if status.infrastructure_failures:
        text += f"; {plural(status.infrastructure_failures, 'failure')} of the infrastructure"
    return text


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
