"""What a server sees, as the rows that a decision is made from.

A decision knows jobs by how many tasks of each role they need and may have; which indices those are is
a matter of the server, and settled afterwards (`carrying`). The indices of an array run apart, so each
is a job of its own there. Whatever a job gives back anyhow (`give_back`) is on its way out already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from shoal.objects.job import Slots
from shoal.objects.meta import Stamp
from shoal.objects.ranges import IndexSet
from shoal.schedule.cycle.rows import Job, Node, Queue, Role, Task
from shoal.schedule.give_back import FORCED, Draft, span
from shoal.schedule.plan import Policy
from shoal.schedule.snapshot import LONGEST_AVOIDANCE_SECONDS, Hold, JobRow, NodeRow, RoleForm, Shape

__all__ = ["NOWHERE", "Posing", "avoided", "index_of", "key_of", "node_of"]

NOWHERE = Queue(name="~")
"""Of what runs in no queue: tasks whose job is not known, and jobs whose queue is gone."""
_STRANGER = "stranger"
_PLENTY = 100_000
"""Of tasks that ask for nothing."""


def node_of(node: NodeRow) -> Node:
    """A node."""
    return Node(
        name=node.name,
        amounts={"cpu": node.cpu, "memory": node.memory},
        gpus=len(node.gpus),
        labels=node.labels,
        taints=node.taints,
        ready=node.ready,
        schedulable=node.schedulable,
    )


def key_of(row: JobRow, index: int | None = None) -> str:
    """The name of a job in a decision; `index`: of one index of an array."""
    name = f"{row.namespace}/{row.name}"
    return name if index is None else f"{name}#{index:06d}"


def index_of(key: str) -> int | None:
    """The index in such a name, of a part of an array."""
    _, mark, index = key.rpartition("#")
    return int(index) if mark else None


def avoided(row: JobRow, now: Stamp) -> str:
    """The node that the job stays away from now, because it was refused there."""
    left = row.avoid_until - now
    return row.avoid if 0 < left <= LONGEST_AVOIDANCE_SECONDS else ""  # more: the clock was set back


class Posing:
    """Of one decision. `again_at` collects when a row will be another though nothing happens."""

    def __init__(
        self, nodes: Sequence[NodeRow], queues: Sequence[Queue], policy: Policy, now: Stamp
    ) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._positions = {
            node.name: {device: at for at, device in enumerate(node.gpus)} for node in nodes
        }
        self._queues = frozenset(queue.name for queue in queues)
        self._counting = any(queue.jobs is not None or queue.user_jobs is not None for queue in queues)
        self._policy, self._now = policy, now
        self.again_at: Stamp | None = None
        self.passing = 0
        """Counts what will be so for a while."""
        self.strange: list[Job] = []
        """What runs without being asked for by anybody: it is there until it is gone."""

    def jobs_of(self, draft: Draft) -> list[Job]:
        """The job's rows: one, or one for each index of an array that runs or may run now; none where
        it neither holds nor wants anything."""
        row = draft.row
        leaving = self._leaving(draft)
        if row.ending or row.queue not in self._queues:
            for hold in leaving:
                self._stranger(hold, row)
            return [] if row.ending or not draft.kept else [self._as_it_is(draft)]
        if draft.form.array:
            return [*self._parts(draft, leaving)]
        roles = tuple(self._roles(draft))
        known = {role.name for role in roles}
        for hold in leaving:
            if hold.role not in known:
                self._stranger(hold, row)
        going = [hold for hold in leaving if hold.role in known]
        if not going and not any(role.maximum for role in roles):
            return []
        job = self._job(
            draft,
            key_of(row),
            roles=roles,
            minimum=self._minimum(draft),
            tasks=tuple(self._tasks(draft, going)),
            reserved=tuple(self._numbered(draft, self._kept(draft, row.reserved))),
        )
        return [job]

    def stranger(self, hold: Hold) -> None:
        """A task whose job is not known."""
        self._stranger(hold, None)

    # a job

    def _job(self, draft: Draft, name: str, **fields: object) -> Job:
        row, form = draft.row, draft.form
        return Job(
            name=name,
            namespace=row.namespace,
            queue=row.queue,
            user=row.user,
            priority=row.priority,
            created=row.created,
            waits_since=row.waits_since,
            since=row.since,
            below_since=row.changed if row.reason in FORCED and _below(draft) else None,
            preemptible=row.preemptible,
            movable=form.movable,
            wall_seconds=row.wall_seconds,
            grace_seconds=row.grace_seconds,
            required=form.required,
            preferred=form.preferred,
            spread=form.spread,
            promised=row.promised,
            speeds=row.speeds,
            work=row.work,
            done=row.progress,
            restart_seconds=row.restart_seconds,
            **fields,  # pyright: ignore[reportArgumentType]
        )

    def _roles(self, draft: Draft) -> Iterator[Role]:
        """What each may have and needs. Indices that have ended well count towards the minimum, for they
        will not run again; once one of an elastic role or of a gang has, the job is coming to its end
        and gets no more than it needs."""
        ends = draft.form.whole and bool(draft.row.done) and bool(draft.kept) and not draft.forced
        rests = self._rests(draft)
        for form in draft.form.roles:
            there = sum(name == form.name for name, _ in draft.kept)
            done = len(draft.done(form.name))
            most = max(there, len(draft.numbering(form)))
            least = min(most, max(0, form.minimum - done))
            if ends:
                least = most = there
            elif rests or (form.elastic and done):
                most = max(there, least)
            yield self._role(draft, form, least, most)

    def _role(self, draft: Draft, form: RoleForm, least: int, most: int) -> Role:
        avoid = avoided(draft.row, self._now)
        if avoid:
            self._look_again(draft.row.avoid_until)
        return _role(form, least, most, (avoid,) if avoid in self._nodes else ())

    def _minimum(self, draft: Draft) -> int:
        done = sum(len(draft.done(role.name)) for role in draft.form.roles)
        least = max(0, draft.form.minimum - done)
        return least if draft.kept else max(1, least)

    def _rests(self, draft: Draft) -> bool:
        """Tasks that start together all stop when there is one more, so what comes free bit by bit is
        waited for, and costs one restart."""
        if not (draft.form.whole and draft.kept) or draft.lost or _below(draft):
            return False
        due = draft.row.changed + self._policy.regrow_seconds
        if self._now >= due:
            return False
        self._look_again(due)
        return True

    def _as_it_is(self, draft: Draft) -> Job:
        """It keeps what it has, and nobody knows what it might have besides."""
        counts = {form.name: 0 for form in draft.form.roles}
        for name, _ in draft.kept:
            counts[name] += 1
        roles = tuple(_role(form, counts[form.name], counts[form.name]) for form in draft.form.roles)
        job = self._job(draft, key_of(draft.row), roles=roles)
        return _in(job, NOWHERE.name, tuple(self._tasks(draft, ())))

    # an array

    def _parts(self, draft: Draft, leaving: Sequence[Hold]) -> Iterator[Job]:
        form = draft.form.roles[0]
        role = self._role(draft, form, 1, 1)
        kept = {index: hold for (_, index), hold in draft.kept.items()}
        going: dict[int, Hold] = {}
        for hold in leaving:
            if hold.index in going or hold.role != form.name:
                self._stranger(hold, draft.row)
            else:
                going[hold.index] = hold
        reserved = {task.index: task for task in self._kept(draft, draft.row.reserved)}
        counted = False
        for index in sorted({*kept, *going, *self._next(draft, form, going)}):
            tasks = [self._task(kept[index], 0)] if index in kept else []
            if index in going:
                tasks.append(self._task(going[index], len(tasks), stopping=True))
            counts = not counted and bool(tasks or not (kept or going))
            counted |= counts
            yield self._job(
                draft,
                key_of(draft.row, index),
                roles=(role,),
                tasks=tuple(tasks),
                reserved=(_named(reserved[index], form.name, 0),) if index in reserved else (),
                counts=counts,
            )

    def _next(self, draft: Draft, form: RoleForm, going: dict[int, Hold]) -> Iterator[int]:
        """The lowest indices that wait: as many as may run beside those that do, and no more than would
        fit if nothing ran. Where jobs are counted the first starts alone: the others do not count."""
        allowed = span(form.indices)
        most = len(allowed) if draft.form.parallelism is None else draft.form.parallelism
        most = min(most - len(draft.kept), self._would_hold(form.shape))
        if self._counting and not (draft.kept or going):
            most = min(most, 1)
        done = set(draft.done(form.name))
        free = (
            index
            for index in allowed
            if index not in done and index not in going and (form.name, index) not in draft.kept
        )
        return islice(free, max(0, most))

    def _would_hold(self, shape: Shape) -> int:
        asks = [("cpu", shape.cpu), ("memory", shape.memory)]
        counts = [
            min(
                [getattr(node, name) // ask for name, ask in asks if ask]
                + ([len(node.gpus) // shape.gpu] if shape.gpu else [])
                + ([len(node.gpus) * (1000 // shape.share)] if shape.share else []),
                default=_PLENTY,
            )
            for node in self._nodes.values()
        ]
        return max(1, sum(counts))

    # tasks

    def _leaving(self, draft: Draft) -> list[Hold]:
        """What is there and does not stay, on nodes that are known."""
        return [
            hold
            for hold in draft.row.holds
            if (hold.live or hold.claimed)
            and draft.kept.get((hold.role, hold.index)) is not hold
            and hold.node in self._nodes
        ]

    def _tasks(self, draft: Draft, going: Sequence[Hold]) -> Iterator[Task]:
        """Numbered as a decision does it: from 0 on, the indices that may run. Those behind them are of
        tasks that may not, and are still there."""
        for form in draft.form.roles:
            places = {index: at for at, index in enumerate(draft.numbering(form))}
            behind = max(len(places), form.minimum)
            for (name, index), hold in draft.kept.items():
                if name == form.name:
                    yield self._task(hold, places[index])
            for hold in going:
                if hold.role != form.name:
                    continue
                at = places.get(hold.index)
                if at is None or (form.name, hold.index) in draft.kept:
                    at, behind = behind, behind + 1
                yield self._task(hold, at, stopping=True)

    def _task(self, hold: Hold, at: int, *, stopping: bool = False) -> Task:
        positions = self._positions.get(hold.node, {})
        gpus = tuple(positions[device] for device in hold.devices if device in positions)
        wanted = hold.gpu or bool(hold.share)
        if (lacking := wanted - len(gpus)) > 0:  # which ones is not known, so it could be any
            others = [other for other in positions.values() if other not in gpus]
            gpus = (*gpus, *others[:lacking], *[0] * (lacking - len(others)))
            for other in others[lacking:]:
                self._block(hold, other)
        return Task(role=hold.role, index=at, node=hold.node, gpus=gpus[:wanted], stopping=stopping)

    def _kept(self, draft: Draft, reserved: Sequence[Slots]) -> Iterator[Task]:
        roles = {form.name for form in draft.form.roles}
        for slots in reserved:
            indices = list(IndexSet.parse(slots.indices))
            positions = self._positions.get(slots.node, {})
            share = len(slots.devices) // max(1, len(indices))
            for at, index in enumerate(indices):
                devices = slots.devices[at * share : (at + 1) * share]
                if slots.role in roles and all(device in positions for device in devices):
                    gpus = tuple(positions[device] for device in devices)
                    yield Task(role=slots.role, index=index, node=slots.node, gpus=gpus)

    def _numbered(self, draft: Draft, tasks: Iterator[Task]) -> Iterator[Task]:
        """As `_tasks`; what is kept for indices that may not run any more is not."""
        places = {
            (form.name, index): at
            for form in draft.form.roles
            for at, index in enumerate(draft.numbering(form))
        }
        for task in tasks:
            at = places.get((task.role, task.index))
            if at is not None:
                yield _named(task, task.role, at)

    def _stranger(self, hold: Hold, row: JobRow | None) -> None:
        """On its way out; it counts in its job's queue until it is gone, the first one as the job."""
        if hold.node not in self._nodes:
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
                queue=queue if queue in self._queues else NOWHERE.name,
                user=user,
                roles=(_role(form, 1, 1),),
                tasks=(_named(self._task(hold, 0, stopping=True), _STRANGER, 0),),
                suspended=True,
                counts=not self.strange or not self.strange[-1].name.startswith(prefix),
            )
        )

    def _block(self, hold: Hold, at: int) -> None:
        role = Role(name=_STRANGER, gpus=1)
        task = Task(role=_STRANGER, node=hold.node, gpus=(at,), stopping=True)
        name = f"~{hold.role}/{hold.index}/{hold.node}/gpu{at}/{len(self.strange)}"
        job = Job(name=name, roles=(role,), suspended=True)
        self.strange.append(_in(job, NOWHERE.name, (task,)))

    def _look_again(self, at: Stamp) -> None:
        self.passing += 1
        self.again_at = at if self.again_at is None else min(at, self.again_at)


def _role(form: RoleForm, least: int, most: int, avoid: tuple[str, ...] = ()) -> Role:
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


def _in(job: Job, queue: str, tasks: tuple[Task, ...]) -> Job:
    return msgspec.structs.replace(job, queue=queue, tasks=tasks)


def _named(task: Task, role: str, index: int) -> Task:
    return msgspec.structs.replace(task, role=role, index=index)


def _below(draft: Draft) -> bool:
    """Whether it holds something, and less than it needs."""
    form = draft.form
    if form.array or not draft.kept:
        return False
    total = 0
    for role in form.roles:
        there = sum(name == role.name for name, _ in draft.kept) + len(draft.done(role.name))
        if there < role.minimum:
            return True
        total += there
    return total < form.minimum
