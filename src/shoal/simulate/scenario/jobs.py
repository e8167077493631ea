"""The jobs of a scenario.

jobs:
  - {name: small, tasks: 2, gpus: 1, priority: 5}              # two tasks or nothing
  - {name: elastic, minimum: 1, maximum: 4, gpus: 1, running: [node0, node0]}
  - {name: half, count: 16, gpus: 0.5}                         # half00 to half15
  - name: trainer
    roles: {ps: {cpu: 4}, worker: {minimum: 2, maximum: 8, gpus: 1}}
    wallTime: 2h
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from shoal.objects.job import Toleration
from shoal.schedule.cycle.rows import Job, Node, Role
from shoal.simulate.scenario.nodes import MOST_AT_ONCE
from shoal.simulate.scenario.running import Slots, read_tasks
from shoal.simulate.scenario.spot import Spot, Spots

__all__ = ["KEYS", "Entry", "read_jobs"]

_WHOLE = 1000
_SIZE = ("tasks", "maximum", "gpus", "cpu", "memory", "amounts", "nodeSelector", "tolerations")
_BOTH = ("minimum", "required", "preferred")
"""Of the only role, or of all roles together where there are several."""
_JOB = (
    "name",
    "count",
    "every",
    "namespace",
    "queue",
    "user",
    "priority",
    "created",
    "roles",
    "running",
    "stopping",
    "reserved",
    "since",
    "waitsSince",
    "belowSince",
    "preemptible",
    "wallTime",
    "gracePeriod",
    "spread",
    "shared",
    "suspended",
    "promised",
    "place",
    "lasts",
    "speeds",
    "work",
    "done",
    "restart",
    "service",
)
KEYS = (*_JOB, *_SIZE, *_BOTH)


@dataclass(frozen=True)
class Entry:
    """A job as it stands in the file."""

    job: Job
    spot: Spot
    lasts: float | None
    """Seconds that it runs; None: until the file says that it has ended."""


def read_jobs(spot: Spot, nodes: Mapping[str, Node], created: float) -> list[Entry]:
    """In the order of the file. `created` is when those came that do not say. Raises `BadInput`."""
    slots = Slots(nodes)
    entries: list[Entry] = []
    for part in spot.one_or_more():
        fields = part.fields(KEYS)
        count = fields.whole_number("count", least=1, default=1)
        if count > MOST_AT_ONCE:
            raise part.wrong(f"count is at most {MOST_AT_ONCE}")
        job, every = _job(fields, slots, created), fields.seconds("every")
        lasts = fields.optional_seconds("lasts")
        if "count" not in fields:
            entries.append(Entry(job, part, lasts))
            continue
        if job.tasks or job.reserved:
            raise part.wrong("what counts for several jobs can be nowhere yet")
        digits = len(str(count - 1))
        for at in range(count):
            name, came = f"{job.name}{at:0{digits}}", job.created + every * at
            entries.append(Entry(msgspec.structs.replace(job, name=name, created=came), part, lasts))
    return entries


def _job(fields: Spots, slots: Slots, created: float) -> Job:
    several = fields.get("roles")
    if several is not None:
        for key in _SIZE:
            if key in fields:
                raise fields.parts[key].wrong(f"{key} belongs to one of the roles")
        roles = tuple(_role(name, part) for name, part in several.entries().items())
        if not roles:
            raise several.wrong("a job has at least one role")
    else:
        roles = (_one_role(fields, "worker"),)
    came = fields.seconds("created", created)
    priority = fields.get("priority")
    return Job(
        name=fields.need("name").text(),
        namespace=fields.text("namespace", "default"),
        queue=fields.text("queue", "default"),
        user=fields.text("user"),
        priority=0 if priority is None else priority.signed(),
        created=came,
        roles=roles,
        minimum=fields.whole_number("minimum") if several is not None else 0,
        tasks=read_tasks(fields, roles, slots, "running"),
        reserved=read_tasks(fields, roles, Slots(slots.nodes), "reserved"),
        since=fields.seconds("since", came),
        waits_since=fields.optional_seconds("waitsSince"),
        below_since=fields.optional_seconds("belowSince"),
        preemptible=fields.flag("preemptible", True),
        wall_seconds=fields.optional_seconds("wallTime"),
        grace_seconds=fields.seconds("gracePeriod"),
        required=fields.text("required") if several is not None else "",
        preferred=fields.text("preferred") if several is not None else "",
        spread=fields.text("spread"),
        shared=fields.counts("shared"),
        suspended=fields.flag("suspended", False),
        promised=fields.optional_seconds("promised"),
        place=read_tasks(fields, roles, Slots(slots.nodes), "place"),
        speeds=_numbers(fields.get("speeds")),
        work=None if (work := fields.get("work")) is None else work.number(),
        done=0.0 if (done := fields.get("done")) is None else done.number(),
        restart_seconds=fields.seconds("restart"),
        service_seconds=fields.seconds("service"),
    )


def _numbers(spot: Spot | None) -> tuple[float, ...]:
    return () if spot is None else tuple(part.number() for part in spot.items())


def _role(name: str, spot: Spot) -> Role:
    return _one_role(spot.fields((*_SIZE, *_BOTH)), name)


def _one_role(fields: Spots, name: str) -> Role:
    if "tasks" in fields and ("minimum" in fields or "maximum" in fields):
        raise fields.parts["tasks"].wrong("tasks, or minimum and maximum: not both")
    least = fields.whole_number("minimum", fields.whole_number("tasks", 1, least=1))
    most = fields.whole_number("maximum", max(least, 1), least=1)
    if least > most:
        raise fields.whole.wrong(f"at least {least} tasks and at most {most} cannot be")
    gpus, share = _gpus(fields.get("gpus"))
    return Role(
        name=name,
        minimum=least,
        maximum=most,
        amounts=fields.amounts(),
        gpus=gpus,
        share=share,
        selector=fields.labels("nodeSelector"),
        tolerations=_tolerations(fields.get("tolerations")),
        required=fields.text("required"),
        preferred=fields.text("preferred"),
    )


def _gpus(spot: Spot | None) -> tuple[int, int]:
    """Whole ones, or thousandths of one."""
    if spot is None:
        return 0, 0
    value = spot.number()
    if value >= 1 or value == 0:
        if not value.is_integer():
            raise spot.wrong(f"a task is on whole GPUs, or on a part of one, not on {value:g}")
        return int(value), 0
    share = round(value * _WHOLE)
    if abs(share - value * _WHOLE) > 1e-9 or not share:
        raise spot.wrong(f"a GPU is shared by thousandths, not {value:g}")
    return 0, share


def _tolerations(spot: Spot | None) -> tuple[Toleration, ...]:
    if spot is None:
        return ()
    try:
        return tuple(msgspec.convert(part.value, Toleration) for part in spot.items())
    except msgspec.ValidationError as error:
        raise spot.wrong(f"tolerations are key, value and effect: {error}") from error
