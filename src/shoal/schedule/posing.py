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
from shoal.schedule.cycle.rows import Job, Node, Queue, Role, Task
from shoal.schedule.give_back import FORCED, Draft, span
from shoal.schedule.held import NOWHERE, Held, role_of
from shoal.schedule.plan import Policy
from shoal.schedule.snapshot import LONGEST_AVOIDANCE_SECONDS, Hold, JobRow, NodeRow, RoleForm, Shape

__all__ = ["Posing", "avoided", "index_of", "key_of", "node_of"]

RESIZES = ("Grown", "Resized")
"""Why slots of a job changed, where its size was changed without its asking."""
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

    def __init__(self, held: Held, queues: Sequence[Queue], policy: Policy, now: Stamp) -> None:
        self._held = held
        self._counting = any(queue.jobs is not None or queue.user_jobs is not None for queue in queues)
        self._policy, self._now = policy, now
        self.again_at: Stamp | None = None
        self.passing = 0
        """Counts what will be so for a while."""

    def jobs_of(self, draft: Draft) -> list[Job]:
        """The job's rows: one, or one for each index of an array that runs or may run now; none where
        it neither holds nor wants anything."""
        row = draft.row
        leaving = self._held.leaving(draft)
        if row.ending or row.queue not in self._held.queues:
            for hold in leaving:
                self._held.stranger(hold, row)
            return [] if row.ending or not draft.kept else [self._as_it_is(draft)]
        if draft.form.array:
            return [*self._parts(draft, leaving)]
        roles = tuple(self._roles(draft))
        known = {role.name for role in roles}
        for hold in leaving:
            if hold.role not in known:
                self._held.stranger(hold, row)
        going = [hold for hold in leaving if hold.role in known]
        if not going and not any(role.maximum for role in roles):
            return []
        job = self._job(
            draft,
            key_of(row),
            roles=roles,
            minimum=self._minimum(draft),
            tasks=tuple(self._held.tasks(draft, going)),
            reserved=tuple(self._held.kept(draft, row.reserved)),
            place=tuple(self._held.kept(draft, row.place)),
        )
        return [job]

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
            resized=row.changed if row.reason in RESIZES else None,
            speeds=row.speeds,
            work=row.work,
            done=row.progress,
            restart_seconds=row.restart_seconds,
            service_seconds=row.served,
            served_at=row.changed,
            service_rate=row.service_rate,
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
        return role_of(form, least, most, (avoid,) if avoid in self._held.nodes else ())

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
        roles = tuple(role_of(form, counts[form.name], counts[form.name]) for form in draft.form.roles)
        job = self._job(draft, key_of(draft.row), roles=roles)
        tasks = tuple(self._held.tasks(draft, ()))
        return msgspec.structs.replace(job, queue=NOWHERE.name, tasks=tasks)

    # an array

    def _parts(self, draft: Draft, leaving: Sequence[Hold]) -> Iterator[Job]:
        form = draft.form.roles[0]
        role = self._role(draft, form, 1, 1)
        kept = {index: hold for (_, index), hold in draft.kept.items()}
        going: dict[int, Hold] = {}
        for hold in leaving:
            if hold.index in going or hold.role != form.name:
                self._held.stranger(hold, draft.row)
            else:
                going[hold.index] = hold
        reserved, place = (
            self._by_index(draft, draft.row.reserved),
            self._by_index(draft, draft.row.place),
        )
        counted = False
        for index in sorted({*kept, *going, *self._next(draft, form, going)}):
            tasks = [self._held.task(kept[index], 0)] if index in kept else []
            if index in going:
                tasks.append(self._held.task(going[index], len(tasks), stopping=True))
            counts = not counted and bool(tasks or not (kept or going))
            counted |= counts
            yield self._job(
                draft,
                key_of(draft.row, index),
                roles=(role,),
                tasks=tuple(tasks),
                reserved=reserved.get(index, ()),
                place=place.get(index, ()),
                counts=counts,
            )

    def _by_index(self, draft: Draft, kept: Sequence[Slots]) -> dict[int, tuple[Task]]:
        tasks = self._held.slots(draft, kept)
        return {task.index: (msgspec.structs.replace(task, index=0),) for task in tasks}

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
            for node in self._held.nodes.values()
        ]
        return max(1, sum(counts))

    def _look_again(self, at: Stamp) -> None:
        self.passing += 1
        self.again_at = at if self.again_at is None else min(at, self.again_at)


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
