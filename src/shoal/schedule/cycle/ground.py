"""What rows come to, kept from one decision to the next: only what has changed is counted anew.

A row that is the same object as last time is the same row: its job as placing knows it, its place on
nodes and its use of queues are as they were. Other nodes or queues are other ground. Sums are kept in
whole numbers (GPUs in thousandths), so that they do not depend on the order in which jobs came and went.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter
from typing import TypeVar

import msgspec
import numpy as np

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.books import Books
from shoal.schedule.cycle.columns import Columns
from shoal.schedule.cycle.gangs import Asked, Reason
from shoal.schedule.cycle.holdings import Holdings
from shoal.schedule.cycle.holds import Held
from shoal.schedule.cycle.needs import Kinds
from shoal.schedule.cycle.rows import Cluster, Job, Queue, Task
from shoal.schedule.cycle.sizes.outlook import check
from shoal.schedule.cycle.units import Unit
from shoal.schedule.placing.asks import Shape, Tasks
from shoal.schedule.placing.room import Room
from shoal.schedule.shares.ledger import Ledger
from shoal.schedule.shares.users import UserCaps

__all__ = ["Ground"]

_THOUSANDTHS = 1000
_Of = TypeVar("_Of")
_Entry = tuple[Asked, Sequence[Task]]


class Ground:
    """Of one set of nodes and queues. Raises ValueError for rows that contradict each other."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.columns = Columns(cluster)
        self.names = [node.name for node in cluster.nodes]
        self.kinds = Kinds(self.columns)
        self.rows = cluster.nodes
        self.all_nodes = self.columns.all_nodes()
        self.empty = Room(self.all_nodes)
        """All nodes, those that do not answer too, and nothing on them."""
        whole = self.all_nodes is self.columns.nodes
        self.open_nodes = self.empty if whole else Room(self.columns.nodes)
        """Empty as well, without nodes that do not answer, or take nothing for now."""
        self.fits: dict[int, bool] = {}
        """Of each need, whether it would fit there."""
        self.unused = self._unused()
        """Books of it."""
        self.asked: dict[str, Asked] = {}
        """All jobs, by name."""
        self.sizes: dict[tuple[object, ...], tuple[object, list[int]]] = {}
        """Of classes of jobs that say how fast they are, as they were chosen, and from what."""
        self.sized: dict[str, Asked] = {}
        """Of jobs that say how fast they are, those that may be given more or fewer tasks."""
        self.never: dict[tuple[object, ...], list[Reason]] = {}
        """Of those who are alike, what no waiting helps against (`reasons`)."""
        self.present: dict[str, tuple[Task, ...]] = {}
        """Of each job that holds something: what is there and stays."""
        self.leaving: dict[str, Asked] = {}
        """Those of whose tasks some were told to go."""
        self.below: dict[str, Asked] = {}
        """Those that have less than their minimum, and since when is known."""
        self.composed: dict[str, Asked] = {}
        """Those whose minimum may be of other roles too."""
        self.holdings = Holdings(len(self.columns.names) - 1)
        """What is there and stays, as arrays."""
        self.units: dict[str, tuple[Asked, list[Unit]]] = {}
        """Of each job, what it may give up of what it holds (`victims`)."""
        self.held = Held(len(self.columns.resources), self.columns.nodes.slots.shape[1])
        """What those hold who hold what their rows say (`future`)."""
        self._made_so_far = 0
        self._rows: dict[int, Asked] = {}
        """All jobs, by the identity of their rows."""
        self._new: set[str] = set()
        """Whose rows have changed since they were counted."""
        self._ending: set[str] = set()
        self._counted: dict[str, tuple[Asked, bool]] = {}
        """Who is counted in the rooms and sums below, and whether it was about to end."""
        self._rooms = (Room(self.columns.nodes), Room(self.columns.nodes))
        wide = (len(cluster.queues), len(self.columns.names))
        self._sums = (np.zeros(wide, dtype=np.int64), np.zeros(wide, dtype=np.int64))
        self.update(cluster)

    def carries(self, cluster: Cluster) -> bool:
        """Whether rows of this cluster can be counted here."""
        old = self._cluster
        if cluster.nodes != old.nodes or _quotas(cluster) != _quotas(old):
            return False
        if cluster.levels != old.levels or cluster.shared != old.shared:
            return False
        known = self._rows
        return all(id(job) in known or self.columns.knows(job) for job in cluster.jobs)

    def update(self, cluster: Cluster) -> None:
        """The jobs that there are now."""
        if self.columns.silent:  # what runs there counts, so that there is more with it than without
            self.columns.measure(cluster)
            self.unused = self._unused()
            self.never.clear()
            for asked in self.asked.values():
                asked.never = None
        self._cluster = cluster
        known = self._rows
        made: dict[str, Asked] = {}
        rows = {id(job): found for job in cluster.jobs if (found := known.get(id(job))) is not None}
        for job in cluster.jobs:
            if id(job) not in rows:
                rows[id(job)] = made[job.name] = self._made(job, self.asked.get(job.name))
        self._rows = rows
        before = {known[row].job.name for row in known.keys() - rows.keys()}
        if before or made:
            self._changed(before - made.keys(), made)

    def open(self, now: Stamp, notice_seconds: float) -> tuple[Books, Books, set[str]]:
        """What is taken now and what is once those who leave are gone, and who they are because their
        wall time is over; what is done to the books is undone by `close`."""
        ending = self.holdings.ending(now + notice_seconds)
        gone: list[tuple[Asked, bool]] = []
        come: list[tuple[Asked, bool]] = []
        for name in sorted(self._new | (ending ^ self._ending)):
            asked, before = self.asked.get(name), self._counted.get(name)
            if before is not None and before != (asked, name in ending):
                gone.append(self._counted.pop(name))
            if asked is not None and asked.holds and name not in self._counted:
                come.append((asked, name in ending))
                self._counted[name] = come[-1]
        self._new, self._ending = set(), ending
        for at, entries in enumerate((_now, _later)):
            for sign, those in ((-1, gone), (1, come)):
                listed = [entry for asked, ended in those for entry in entries(asked, ended)]
                self._count(at, listed, sign)
        return self._books(0), self._books(1), ending

    def close(self) -> None:
        """The rooms are as they were."""
        for room in self._rooms:
            room.rollback(0)

    def _changed(self, gone: set[str], made: dict[str, Asked]) -> None:
        """Some jobs are no more, and some rows are new."""
        self._new.update(gone, made)
        for name in gone:
            self.units.pop(name, None)
            self.holdings.drop(name)
            self.held.drop(self.asked[name])
        for name, asked in made.items():
            if asked.present or name in self.holdings.at:
                self.holdings.put(asked)
            self.held.put(asked)
            check(asked.job)

        there = {name: asked.present for name, asked in made.items() if asked.present}
        leaving = {name: asked for name, asked in made.items() if asked.leaving}
        below = {name: asked for name, asked in made.items() if asked.job.below_since is not None}
        composed = {name: asked for name, asked in made.items() if asked.open}
        sized = {name: asked for name, asked in made.items() if asked.job.speeds}
        old = gone | made.keys()
        self.asked = _in_order(self.asked, gone, made)
        self.present = _in_order(self.present, old - there.keys(), there)
        self.leaving = _in_order(self.leaving, old - leaving.keys(), leaving)
        self.below = _in_order(self.below, old - below.keys(), below)
        self.composed = _in_order(self.composed, old - composed.keys(), composed)
        sized = {name: asked for name, asked in sized.items() if asked.sized is not None}
        self.sized = _in_order(self.sized, old - sized.keys(), sized)

    def _unused(self) -> Books:
        columns = self.columns
        ledger = Ledger(columns.quotas, columns.quotas.nominal * 0.0, columns.capacity)
        users = UserCaps(columns.tree, columns.user_caps)
        return Books(self.empty, ledger, users, dict(self._cluster.shared))

    def _made(self, job: Job, before: Asked | None) -> Asked:
        if job.queue not in self.columns.queue_at:
            raise ValueError(f"job {job.name}: there is no queue {job.queue}")
        if before is not None:
            return Asked(job, self.columns, self.kinds, before.number)
        self._made_so_far += 1
        return Asked(job, self.columns, self.kinds, self._made_so_far)

    def _count(
        self, at: int, entries: Sequence[tuple[Asked, Sequence[Task], bool, bool]], sign: int
    ) -> None:
        """`entries`: tasks of a job, whether they are in use in its queue, and whether the job itself is
        counted with them."""
        room = self._rooms[at]
        for tasks in _gathered([(asked, tasks) for asked, tasks, _, _ in entries], self.columns.node_at):
            if sign > 0:
                room.occupy(tasks)
            else:
                room.give_back(tasks)
        room.settle()
        used = [
            (asked.queue, (*asked.needs.amounts(asked.counts(tasks)), int(new and asked.job.counts)))
            for asked, tasks, charged, new in entries
            if charged
        ]
        if used:
            queues = np.array([queue for queue, _ in used], dtype=np.int64)
            np.add.at(
                self._sums[at], queues, sign * np.array([amounts for _, amounts in used], dtype=np.int64)
            )

    def _books(self, at: int) -> Books:
        columns = self.columns
        used = self._sums[at].astype(np.float64)
        used[:, -2] /= _THOUSANDTHS
        users = UserCaps(columns.tree, columns.user_caps)
        shared = dict(self._cluster.shared)
        if users.capped or shared:
            entries = _now if at == 0 else _later
            for name in sorted(self._counted):
                for asked, tasks, charged, new in entries(*self._counted[name]):
                    amounts = asked.ask(asked.counts(tasks), new=new)
                    if charged:
                        users.charge(asked.queue, asked.job.user, amounts)
                    if charged and amounts[-1]:
                        for each, amount in asked.job.shared.items():
                            shared[each] = shared.get(each, 0) - amount
        return Books(self._rooms[at], Ledger(columns.quotas, used, columns.capacity), users, shared)


_Counted = list[tuple[Asked, Sequence[Task], bool, bool]]


def _now(asked: Asked, ending: bool) -> _Counted:
    """What it is counted with in what there is now. What is kept for it is nobody else's, and in use
    are those who leave for it."""
    job = asked.job
    found: _Counted = [(asked, job.tasks, True, True)] if job.tasks else []
    return [*found, (asked, job.reserved, False, False)] if job.reserved else found


def _later(asked: Asked, ending: bool) -> _Counted:
    """And in what there is once those who leave are gone."""
    job, staying = asked.job, () if ending else asked.present
    found: _Counted = [(asked, staying, True, True)] if staying else []
    return [*found, (asked, job.reserved, True, not asked.present)] if job.reserved else found


def _in_order(known: dict[str, _Of], gone: Collection[str], new: dict[str, _Of]) -> dict[str, _Of]:
    """Without those that are gone, and with what is new, by name."""
    for name in gone:
        known.pop(name, None)
    more = not new.keys() <= known.keys()
    known.update(new)
    return dict(sorted(known.items(), key=itemgetter(0))) if more else known


def _gathered(entries: Iterable[_Entry], node_at: dict[str, int]) -> list[Tasks]:
    """All tasks, by shape; those on nodes that are not known any more are left out."""
    nodes: dict[Shape, list[int]] = {}
    slots: dict[Shape, list[tuple[int, ...]]] = {}
    for asked, tasks in entries:
        shapes = dict(zip(asked.needs.names, asked.shapes, strict=True))
        for task in tasks:
            shape = shapes[task.role]
            at = node_at.get(task.node)
            if at is not None:
                nodes.setdefault(shape, []).append(at)
                slots.setdefault(shape, []).append(task.gpus)
    return [
        Tasks(
            shape,
            np.array(where, dtype=np.int64),
            np.array(slots[shape], dtype=np.int64).reshape(len(where), shape.slots),
        )
        for shape, where in nodes.items()
    ]


def _quotas(cluster: Cluster) -> tuple[Queue, ...]:
    """Queues without what is spent, which nothing is counted from."""
    return tuple(
        msgspec.structs.replace(queue, budgets=()) if queue.budgets else queue
        for queue in cluster.queues
    )
