"""Every column that a decision reads is set by what a server sees, or is listed here with its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import msgspec

import shoal.schedule
from shoal.objects.job import Slots, Toleration
from shoal.objects.node import Taint
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Task, UserUsage
from shoal.schedule.decide import Decider
from shoal.schedule.plan import Policy
from shoal.schedule.snapshot import Snapshot
from tests.schedule import world
from tests.schedule.world import NOW

NEVER = {
    "Cluster.shared": "servers have no licences",
    "Job.shared": "servers have no licences",
    "Cluster.version": "of the rows: this one",
    "Task.preemptible": "jobs may be taken, or not, as a whole",
}
"""Columns that servers never set."""

READERS = ("cycle/peers", "cycle/sizes", "baselines")
"""Who reads them for other policies, and for sizes."""


def everything() -> Snapshot:
    """A world with all that rows can say."""
    form = msgspec.structs.replace(
        world.elastic(1, 3, coordinated=True, memory=5, gpu=1),
        minimum=2,
        required="rack",
        preferred="rack",
        spread="rack",
        movable=True,
    )
    worker = form.roles[1]
    shape = msgspec.structs.replace(
        worker.shape, selector=(("disk", "ssd"),), tolerations=(Toleration(key="k"),)
    )
    worker = msgspec.structs.replace(worker, shape=shape, required="rack", preferred="rack")
    form = msgspec.structs.replace(form, roles=(form.roles[0], worker))
    full = {
        "namespace": "team",
        "queue": "research",
        "user": "ada",
        "priority": 7,
        "waits_since": NOW - 1,
        "wall_seconds": 60.0,
        "grace_seconds": 3.0,
        "preemptible": False,
        "promised": NOW + 9,
        "place": (Slots(role="worker", indices="1", node="b", devices=("g0",)),),
        "speeds": (1.0, 1.5, 2.0),
        "work": 100.0,
        "progress": 10.0,
        "restart_seconds": 4.0,
        "served": 50.0,
        "service_rate": 2.0,
        "changed": NOW - 5,
        "reason": "NodeLost",
        "avoid": "b",
        "avoid_until": NOW + 5,
        "reserved": (Slots(role="worker", indices="1", node="b", devices=("g0",)),),
    }
    nodes = [
        world.node(
            name,
            cpu=2000,
            gpus=("g0", "g1"),
            labels={"rack": "r", "disk": "ssd"},
            taints=(Taint(key="k", effect="NoSchedule"),) if name == "b" else (),
            ready=name != "c",
            schedulable=name != "c",
        )
        for name in "abc"
    ]
    part = world.array("0-3", share=250)
    jobs = [
        world.Job("full", form, "+coordinator/0@a +worker/0@a/g1 -worker/2@a/g0", **full),
        world.Job("parts", part, "0@a/g0 1@a/g0", queue="research"),
        world.Job("below", world.gang(2), "+0@c", reason="NodeLost", queue="research"),
        world.Job("grown", world.elastic(1, 2), "+0@a", reason="Grown", changed=NOW - 9),
        world.Job("gone", world.gang(1), "+0@c", queue="of-nobody", ending="Cancelled"),
    ]
    queues = [Queue(name="default"), Queue(name="research", nominal={"gpu": 1.0})]
    usage = (UserUsage(queue="research", user="ada", seconds=9.0, at=NOW - 3),)
    return msgspec.structs.replace(world.snapshot(nodes, jobs, queues), levels=("rack",), usage=usage)


def posed() -> Cluster:
    return Decider().decide(everything(), Policy(), NOW).cluster


def parts(cluster: Cluster) -> Iterator[msgspec.Struct]:
    """The rows that servers make; queues are rows of their own already."""
    yield cluster
    yield from cluster.nodes
    for job in cluster.jobs:
        yield job
        yield from job.roles
        yield from (*job.tasks, *job.reserved)


def unset(cluster: Cluster) -> set[str]:
    """Columns that have their default in every row."""
    found = {
        f"{kind.__name__}.{field.name}"
        for kind in (Cluster, Node, Job, Role, Task)
        for field in msgspec.structs.fields(kind)
        if not field.required
    }
    for part in parts(cluster):
        for field in msgspec.structs.fields(type(part)):
            if not field.required and getattr(part, field.name) != _default(field):
                found.discard(f"{type(part).__name__}.{field.name}")
    return found


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return field.default_factory()  # type: ignore[operator]


def test_servers_set_every_column_but_those_that_are_listed() -> None:
    """A column that is added, and set by simulators alone, is found here."""
    assert unset(posed()) == set(NEVER)


def test_what_servers_never_set_is_read_by_no_other_policy() -> None:
    names = {column.partition(".")[2] for column in NEVER if column.startswith("Job.")}
    root = Path(shoal.schedule.__file__).parent
    files = [path for reader in READERS for path in sorted((root / reader).rglob("*.py"))]
    assert len(files) > len(READERS)
    for path in files:
        read = {
            node.attr
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute)
        }
        assert not read & names, path
