"""What a table of each kind shows, column by column. Used by `shoal get` and by the web pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoal.objects.job import PRIORITIES, Job
from shoal.objects.meta import Condition
from shoal.objects.node import Node
from shoal.objects.quantities import Bytes, Quantity
from shoal.objects.queue import Queue

__all__ = ["JOB_COLUMNS", "NODE_COLUMNS", "QUEUE_COLUMNS", "Column", "age", "rounded_bytes"]


@dataclass(frozen=True)
class Column:
    """One column of a kind's table: `value(object, now)` gives its text."""

    title: str
    value: Callable[[Any, float], str]
    wide: bool = False
    """True: shown with `-o wide` only."""


def age(since: float, now: float) -> str:
    """How long ago `since` was, in its two largest units: `45s`, `3m10s`, `5h`, `12d`; `-` for never.

    A stamp from the future (a clock went back) is `0s`.
    """
    if not since:
        return "-"
    seconds = max(0, int(now - since))
    if seconds < 120:
        return f"{seconds}s"
    if seconds < 600:
        return f"{seconds // 60}m{seconds % 60}s" if seconds % 60 else f"{seconds // 60}m"
    if seconds < 3 * 3600:
        return f"{seconds // 60}m"
    if seconds < 48 * 3600:
        return f"{seconds // 3600}h"
    return f"{seconds // 86400}d"


def _created(obj: Any, now: float) -> str:
    return age(obj.metadata.created, now)


def _name(obj: Any, _now: float) -> str:
    return obj.metadata.name


def _tasks(job: Job, _now: float) -> str:
    running = sum(role.running for role in job.status.roles)
    if job.spec.array is None:
        return f"{running}/{sum(role.replicas for role in job.spec.roles)}"
    ended = sum(role.succeeded + role.failed for role in job.status.roles)
    return f"{running} ({ended} ended)"


def _phase(job: Job, _now: float) -> str:
    if job.metadata.deleted:
        return "Deleting"
    passing = ("Preempting", "Resizing", "Restarting")
    now_true = [c.type for c in job.status.conditions if c.status == "True" and c.type in passing]
    return now_true[0] if now_true else job.status.phase


def _reason(job: Job, _now: float) -> str:
    if job.status.phase == "Pending" and job.status.scheduling.code:
        return job.status.scheduling.code
    return job.status.reason or "-"


def _message(job: Job, _now: float) -> str:
    waiting = job.status.phase == "Pending" and job.status.scheduling.message
    return waiting or job.status.message or "-"


def _priority(job: Job, _now: float) -> str:
    named = {number: name for name, number in PRIORITIES.items()}
    priority = job.spec.priority
    return named.get(priority, str(priority)) if isinstance(priority, int) else priority


def _restarts(job: Job, _now: float) -> str:
    return str(job.status.failures + job.status.infrastructure_failures)


def _nodes(job: Job, _now: float) -> str:
    return ",".join(sorted({slots.node for slots in job.status.allocation.slots})) or "-"


def _exit_code(job: Job, _now: float) -> str:
    return "-" if job.status.exit_code is None else str(job.status.exit_code)


JOB_COLUMNS = (
    Column("NAME", _name),
    Column("PHASE", _phase),
    Column("TASKS", _tasks),
    Column("QUEUE", lambda job, now: job.spec.queue),
    Column("PRIORITY", _priority),
    Column("AGE", _created),
    Column("REASON", _reason),
    Column("RUNTIME", lambda job, now: job.spec.runtime, wide=True),
    Column("RESTARTS", _restarts, wide=True),
    Column("EXIT", _exit_code, wide=True),
    Column("NODES", _nodes, wide=True),
    Column("SUBMITTER", lambda job, now: job.metadata.submitter or "-", wide=True),
    Column("MESSAGE", _message, wide=True),
)


def _used(used: Quantity | float, quota: Quantity | float | None) -> str:
    return _text(used) if quota is None else f"{_text(used)}/{_text(quota)}"


def _text(value: Quantity | float) -> str:
    if isinstance(value, Bytes):
        return rounded_bytes(value)
    return value.text() if isinstance(value, Quantity) else f"{value:.10g}"


def rounded_bytes(value: Bytes) -> str:
    """At most four digits: a table is read, not computed with."""
    number = float(value)
    for suffix in ("", "Ki", "Mi", "Gi", "Ti", "Pi"):
        if number < 1024:
            return f"{number:.4g}{suffix}"
        number /= 1024
    return f"{number:.4g}Ei"


def _running(queue: Queue, _now: float) -> str:
    return _used(queue.status.running, queue.spec.quota.jobs)


QUEUE_COLUMNS = (
    Column("NAME", _name),
    Column("PENDING", lambda queue, now: str(queue.status.pending)),
    Column("RUNNING", _running),
    Column("CPU", lambda queue, now: _used(queue.status.usage.cpu, queue.spec.quota.cpu)),
    Column("MEMORY", lambda queue, now: _used(queue.status.usage.memory, queue.spec.quota.memory)),
    Column("GPU", lambda queue, now: _used(queue.status.usage.gpu, queue.spec.quota.gpu)),
    Column("AGE", _created),
    Column("PARENT", lambda queue, now: queue.spec.parent or "-", wide=True),
    Column("WEIGHT", lambda queue, now: f"{queue.spec.weight:g}", wide=True),
    Column("OLDEST", lambda queue, now: age(queue.status.oldest_pending, now), wide=True),
    Column("NAMESPACES", lambda queue, now: ",".join(queue.spec.namespaces) or "*", wide=True),
)


def _ready(node: Node) -> Condition | None:
    return next((c for c in node.status.conditions if c.type == "Ready"), None)


def _node_status(node: Node, _now: float) -> str:
    if node.spec.lost:
        return "Lost"
    ready = _ready(node)
    word = "Ready" if ready is not None and ready.status == "True" else "NotReady"
    return f"{word},Cordoned" if node.spec.unschedulable else word


def _taints(node: Node, _now: float) -> str:
    spelt = (
        f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
        for taint in node.spec.taints
    )
    return ",".join(spelt) or "-"


def _labels(node: Node, _now: float) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(node.spec.labels.items())) or "-"


def _node_message(node: Node, _now: float) -> str:
    ready = _ready(node)
    return (ready.message if ready is not None else "") or "-"


NODE_COLUMNS = (
    Column("NAME", _name),
    Column("STATUS", _node_status),
    Column("CPU", lambda node, now: node.status.capacity.cpu.text()),
    Column("MEMORY", lambda node, now: _text(node.status.capacity.memory)),
    Column("GPU", lambda node, now: str(len(node.status.capacity.gpus))),
    Column("AGE", _created),
    Column("TAINTS", _taints, wide=True),
    Column("LABELS", _labels, wide=True),
    Column("ADDRESS", lambda node, now: node.status.address or "-", wide=True),
    Column("MESSAGE", _node_message, wide=True),
)
