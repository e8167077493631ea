"""Short ways to write snapshots, and what every plan must obey."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shoal.objects.job import Slots, Toleration
from shoal.objects.ranges import IndexSet
from shoal.schedule.cycle.rows import Queue
from shoal.schedule.plan import Plan, Write
from shoal.schedule.snapshot import Form, Hold, JobRow, NodeRow, RoleForm, Shape, Snapshot

NOW = 1_000_000.0


def node(name: str, cpu: int = 4000, **fields) -> NodeRow:
    return NodeRow(name=name, cpu=cpu, **{"memory": 2**34, **fields})


def role(count: int = 1, minimum: int | None = None, name: str = "worker", **shape) -> RoleForm:
    shape = {"cpu": 1000, **shape}
    indices = IndexSet.span(count).text
    return RoleForm(
        name=name, shape=Shape(**shape), indices=indices, minimum=count if minimum is None else minimum
    )


def gang(count: int = 1, *, whole: bool = True, **shape) -> Form:
    return Form(roles=(role(count, **shape),), minimum=0, whole=whole)


def elastic(least: int, most: int, *, whole: bool = False, coordinated: bool = False, **shape) -> Form:
    one = msgspec.structs.replace(role(most, least, **shape), elastic=True)
    first = (role(1, name="coordinator", cpu=100),) if coordinated else ()
    return Form(roles=(*first, one), minimum=0, whole=whole)


def array(indices: str, parallelism: int | None = None, **shape) -> Form:
    one = RoleForm(name="worker", shape=Shape(**{"cpu": 1000, **shape}), indices=indices, minimum=0)
    return Form(roles=(one,), minimum=1, array=True, parallelism=parallelism)


class Job:
    """A job to be: `holds` as `index@node` (of the first role, or `role/index@node`), with `+` for a
    live task there, `-` for one whose slot has been taken back already."""

    def __init__(self, name: str, form: Form, holds: str = "", **fields) -> None:
        self.form = form
        self.fields = {"uid": f"uid-{name}", "namespace": "default", "name": name, **fields}
        self.holds = tuple(self._hold(text) for text in holds.split())

    def _hold(self, text: str) -> Hold:
        slot, live = not text.startswith("-"), text[0] in "+-"
        index, node = text.lstrip("+-").split("@")
        name, _, index = index.rpartition("/")
        each = next(r for r in self.form.roles if not name or r.name == name)
        shape = each.shape
        node, _, devices = node.partition("/")
        return Hold(
            role=each.name,
            index=int(index),
            node=node,
            devices=tuple(filter(None, devices.split("/"))),
            cpu=shape.cpu,
            memory=shape.memory,
            gpu=shape.gpu,
            share=shape.share,
            slot=slot,
            live=live,
        )


def snapshot(nodes: Iterable[NodeRow], jobs: Iterable[Job], queues: Iterable[Queue] = ()) -> Snapshot:
    forms: list[Form] = []
    rows: list[JobRow] = []
    for number, job in enumerate(jobs):
        if job.form not in forms:
            forms.append(job.form)
        fields = {"created": NOW - 100.0 + number, **job.fields}
        fields.setdefault("since", fields["created"])
        rows.append(JobRow(form=forms.index(job.form), holds=job.holds, **fields))
    return Snapshot(
        nodes=tuple(nodes),
        queues=tuple(queues) or (Queue(name="default"),),
        forms=tuple(forms),
        jobs=tuple(sorted(rows, key=lambda row: row.order)),
    )


def write_of(plan: Plan, name: str) -> Write | None:
    """The one write of that job."""
    writes = [write for write in plan.writes if write.job.name == name]
    assert len(writes) <= 1, writes
    return writes[0] if writes else None


def placed(plan: Plan, name: str) -> dict[int, str] | None:
    """Index to node of the job's slots after the plan; None when they stay."""
    write = write_of(plan, name)
    if write is None or write.slots is None:
        return None
    return {index: s.node for s in write.slots for index in IndexSet.parse(s.indices)}


def codes(plan: Plan) -> dict[str, str]:
    return {write.job.name: write.code for write in plan.writes if write.code}


def steps(plan: Plan, name: str) -> list[str]:
    return [type(s).__name__ for w in plan.writes if w.job.name == name for s in w.steps]


def apply(world: Snapshot, write: Write, now: float = NOW) -> Snapshot:
    """The snapshot after one write, nothing else having happened."""
    return msgspec.structs.replace(
        world, jobs=tuple(_after(world, row, write, now) for row in world.jobs)
    )


def held(world: Snapshot) -> dict[str, list[Hold]]:
    """Node to everything that is held there."""
    there: dict[str, list[Hold]] = {node.name: [] for node in world.nodes}
    for row in world.jobs:
        for hold in row.holds:
            there.setdefault(hold.node, []).append(hold)
    for hold in world.strangers:
        there.setdefault(hold.node, []).append(hold)
    return there


def overcommitted(world: Snapshot) -> list[str]:
    """What is held more than once, or beyond capacity."""
    wrong: list[str] = []
    for node_row in world.nodes:
        holds = held(world)[node_row.name]
        if sum(hold.cpu for hold in holds) > node_row.cpu:
            wrong.append(f"{node_row.name} cpu")
        if sum(hold.memory for hold in holds) > node_row.memory:
            wrong.append(f"{node_row.name} memory")
        devices = [device for hold in holds for device in hold.devices]
        if len(devices) != len(set(devices)) or not set(devices) <= set(node_row.gpus):
            wrong.append(f"{node_row.name} devices {devices}")
    return wrong


def _after(world: Snapshot, row: JobRow, write: Write, now: float) -> JobRow:
    if row.uid != write.job.uid:
        return row
    assert row.allocation == write.allocation
    fields = {
        "code": write.code,
        "evidence": write.evidence,
        "reserved": write.reserved,
        "promised": write.promised,
        "place": write.place,
    }
    if write.slots is None:
        return msgspec.structs.replace(row, **fields)
    shapes = {each.name: each.shape for each in world.forms[row.form].roles}
    slots = {(s.role, index, s.node): devices for s in write.slots for index, devices in _expand(s)}
    holds: list[Hold] = []
    for hold in row.holds:
        key = (hold.role, hold.index, hold.node)
        if key in slots or hold.live or hold.claimed:
            devices = dict.fromkeys((*slots.get(key, ()), *(hold.devices if hold.live else ())))
            holds.append(msgspec.structs.replace(hold, slot=key in slots, devices=tuple(devices)))
        slots.pop(key, None)
    for (role_name, index, node_name), devices in slots.items():
        shape = shapes[role_name]
        hold = Hold(role=role_name, index=index, node=node_name, devices=devices, slot=True)
        holds.append(msgspec.structs.replace(hold, cpu=shape.cpu, memory=shape.memory, gpu=shape.gpu))
    began = not any(hold.slot for hold in row.holds)
    fields |= {"reason": write.reason, "since": now if began else row.since}
    return msgspec.structs.replace(
        row, holds=tuple(holds), allocation=row.allocation + 1, changed=now, refused=False, **fields
    )


def _expand(slots: Slots) -> Iterable[tuple[int, tuple[str, ...]]]:
    indices = list(IndexSet.parse(slots.indices))
    share = len(slots.devices) // len(indices)
    for position, index in enumerate(indices):
        yield index, slots.devices[position * share : (position + 1) * share]


TOLERATE_ALL = (Toleration(),)
