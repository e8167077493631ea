"""What jobs hold, as tasks of a decision, which knows nodes and positions of GPUs.

What runs without being asked for by anybody (its job, its queue or its slot is gone) is there until it
is gone: such strangers are jobs of their own, on their way out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from shoal.objects.job import Slots
from shoal.objects.ranges import IndexSet
from shoal.schedule.cycle.rows import Job, Queue, Role, Task
from shoal.schedule.give_back import Draft
from shoal.schedule.snapshot import Hold, JobRow, NodeRow, RoleForm, Shape

__all__ = ["NOWHERE", "Held", "role_of"]

NOWHERE = Queue(name="~")
"""Of what runs in no queue: tasks whose job is not known, and jobs whose queue is gone."""
_STRANGER = "stranger"


class Held:
    """On these nodes, in these queues. `strange` collects strangers as they are met."""

    def __init__(self, nodes: Sequence[NodeRow], queues: Sequence[Queue]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self._positions = {
            node.name: {device: at for at, device in enumerate(node.gpus)} for node in nodes
        }
        self.queues = frozenset(queue.name for queue in queues)
        self.strange: list[Job] = []

    def leaving(self, draft: Draft) -> list[Hold]:
        """What is there and does not stay, on nodes that are known."""
        return [
            hold
            for hold in draft.row.holds
            if (hold.live or hold.claimed)
            and draft.kept.get((hold.role, hold.index)) is not hold
            and hold.node in self.nodes
        ]

    def tasks(self, draft: Draft, going: Sequence[Hold]) -> Iterator[Task]:
        """Numbered as a decision does it: from 0 on, the indices that may run. Those behind them are of
        tasks that may not, and are still there."""
        for form in draft.form.roles:
            places = {index: at for at, index in enumerate(draft.numbering(form))}
            behind = max(len(places), form.minimum)
            for (name, index), hold in draft.kept.items():
                if name == form.name:
                    yield self.task(hold, places[index])
            for hold in going:
                if hold.role != form.name:
                    continue
                at = places.get(hold.index)
                if at is None or (form.name, hold.index) in draft.kept:
                    at, behind = behind, behind + 1
                yield self.task(hold, at, stopping=True)

    def task(self, hold: Hold, at: int, *, stopping: bool = False) -> Task:
        """Of that number. Where it is not known which devices it holds, it may be any: none is free."""
        positions = self._positions.get(hold.node, {})
        gpus = tuple(positions[device] for device in hold.devices if device in positions)
        wanted = hold.gpu or bool(hold.share)
        if (lacking := wanted - len(gpus)) > 0:  # which ones is not known, so it could be any
            others = [other for other in positions.values() if other not in gpus]
            gpus = (*gpus, *others[:lacking], *[0] * (lacking - len(others)))
            for other in others[lacking:]:
                self._block(hold, other)
        return Task(role=hold.role, index=at, node=hold.node, gpus=gpus[:wanted], stopping=stopping)

    def slots(self, draft: Draft, kept: Sequence[Slots]) -> Iterator[Task]:
        """What is kept for the job, now or at its date, by its own indices."""
        roles = {form.name for form in draft.form.roles}
        for slots in kept:
            indices = list(IndexSet.parse(slots.indices))
            positions = self._positions.get(slots.node, {})
            share = len(slots.devices) // max(1, len(indices))
            for at, index in enumerate(indices):
                devices = slots.devices[at * share : (at + 1) * share]
                if slots.role in roles and all(device in positions for device in devices):
                    gpus = tuple(positions[device] for device in devices)
                    yield Task(role=slots.role, index=index, node=slots.node, gpus=gpus)

    def kept(self, draft: Draft, kept: Sequence[Slots]) -> Iterator[Task]:
        """The same, numbered as `tasks`; for indices that may not run any more nothing is kept."""
        places = {
            (form.name, index): at
            for form in draft.form.roles
            for at, index in enumerate(draft.numbering(form))
        }
        for task in self.slots(draft, kept):
            at = places.get((task.role, task.index))
            if at is not None:
                yield _named(task, task.role, at)

    def stranger(self, hold: Hold, row: JobRow | None) -> None:
        """On its way out; it counts in its job's queue until it is gone, the first one as the job."""
        if hold.node not in self.nodes:
            return
        form = RoleForm(
            name=_STRANGER,
            shape=Shape(cpu=hold.cpu, memory=hold.memory, gpu=hold.gpu, share=hold.share),
            indices="0",
            minimum=1,
        )
        uid, user, queue = ("", "", "") if row is None else (row.uid, row.user, row.queue)
        prefix = f"~{uid}/"
        self.strange.append(
            Job(
                name=f"{prefix}{hold.role}/{hold.index}/{hold.node}",
                queue=queue if queue in self.queues else NOWHERE.name,
                user=user,
                roles=(role_of(form, 1, 1),),
                tasks=(_named(self.task(hold, 0, stopping=True), _STRANGER, 0),),
                suspended=True,
                counts=not self.strange or not self.strange[-1].name.startswith(prefix),
            )
        )

    def _block(self, hold: Hold, at: int) -> None:
        role = Role(name=_STRANGER, gpus=1)
        task = Task(role=_STRANGER, node=hold.node, gpus=(at,), stopping=True)
        name = f"~{hold.role}/{hold.index}/{hold.node}/gpu{at}/{len(self.strange)}"
        self.strange.append(
            Job(name=name, queue=NOWHERE.name, roles=(role,), tasks=(task,), suspended=True)
        )


def role_of(form: RoleForm, least: int, most: int, avoid: tuple[str, ...] = ()) -> Role:
    """Of so many tasks; `avoid`: not on these nodes."""
    shape = form.shape
    amounts = {"cpu": shape.cpu, "memory": shape.memory}
    return Role(
        name=form.name,
        minimum=least,
        maximum=most,
        amounts={name: amount for name, amount in amounts.items() if amount},
        gpus=shape.gpu,
        share=shape.share,
        selector=dict(shape.selector),
        tolerations=shape.tolerations,
        avoid=avoid,
        required=form.required,
        preferred=form.preferred,
    )


def _named(task: Task, role: str, index: int) -> Task:
    return msgspec.structs.replace(task, role=role, index=index)
