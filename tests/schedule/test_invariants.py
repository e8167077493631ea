"""Whatever happens to jobs and nodes, in whatever order: every plan keeps the scheduler's promises, and
so does every part of one that was cut off after some write."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from shoal.objects import codec
from shoal.objects.node import Taint
from shoal.objects.ranges import IndexSet
from shoal.schedule.cycle.invariants import broken
from shoal.schedule.cycle.rows import Queue
from shoal.schedule.decide import Decider, decide
from shoal.schedule.explain import explain
from shoal.schedule.plan import Deny, Plan, Policy, Preempt, Reserve, Shrink, Start
from shoal.schedule.snapshot import Form, JobRow, Snapshot
from tests.schedule.world import (
    NOW,
    Job,
    apply,
    array,
    elastic,
    gang,
    node,
    overcommitted,
    role,
    snapshot,
)

FORMS = (
    gang(1),
    gang(3),
    gang(2, gpu=1),
    gang(2, whole=False),
    gang(1, cpu=2500, selector=(("disk", "fast"),)),
    elastic(1, 5),
    elastic(2, 4, whole=True),
    elastic(1, 4, coordinated=True),
    array("0-5", 2),
    array("1,3-9"),
    Form(roles=(role(1, name="head", cpu=100), role(4, 0, gpu=1)), minimum=3, whole=True),
)
FLAGS = ("ready", "schedulable", "lost")
POLICY = Policy()


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(
        cpus=st.lists(st.sampled_from([1000, 2500, 4000, 6000]), min_size=1, max_size=4),
        gpus=st.integers(0, 3),
    )
    def begin(self, cpus: list[int], gpus: int) -> None:
        nodes = [
            node(
                f"n{number}",
                cpu,
                gpus=tuple(f"n{number}g{gpu}" for gpu in range(gpus if number % 2 else 0)),
                labels={"disk": "fast"} if number == 0 else {},
            )
            for number, cpu in enumerate(cpus)
        ]
        queues = (Queue(name="default"), Queue(name="small", limit={"cpu": 3000}, jobs=2))
        self.world = msgspec.structs.replace(snapshot(nodes, []), queues=queues, forms=FORMS)
        self.count = 0
        self.decider = Decider()

    @rule(
        form=st.integers(0, len(FORMS) - 1),
        priority=st.sampled_from([-1, 0, 0, 1]),
        queue=st.sampled_from(["default", "default", "small"]),
    )
    def submit(self, form: int, priority: int, queue: str) -> None:
        self.count += 1
        name = f"j{self.count}"
        made = Job(
            name, FORMS[form], priority=priority, queue=queue, created=NOW - 100 + self.count // 2
        )
        row = JobRow(form=form, **made.fields)
        self.world = msgspec.structs.replace(
            self.world, jobs=tuple(sorted([*self.world.jobs, row], key=lambda row: row.order))
        )

    @rule(data=st.data())
    def tasks_start(self, data: st.DataObject) -> None:
        self.change_holds(data, lambda hold: msgspec.structs.replace(hold, claimed=True, live=hold.slot))

    @rule(data=st.data())
    def tasks_end(self, data: st.DataObject) -> None:
        self.change_holds(data, lambda hold: msgspec.structs.replace(hold, claimed=False, live=False))

    def change_holds(self, data: st.DataObject, change) -> None:
        def changed(row: JobRow) -> JobRow:
            holds = [change(hold) for hold in row.holds]
            return msgspec.structs.replace(
                row, holds=tuple(hold for hold in holds if hold.slot or hold.live or hold.claimed)
            )

        self.change_job(data, changed)

    @rule(data=st.data())
    def an_index_is_done(self, data: st.DataObject) -> None:
        def changed(row: JobRow) -> JobRow:
            slots = [hold for hold in row.holds if hold.slot]
            if not slots:
                return row
            hold = slots[0]
            before = dict(row.done).get(hold.role, "")
            done = {**dict(row.done), hold.role: IndexSet([*IndexSet.parse(before), hold.index]).text}
            gone = msgspec.structs.replace(hold, live=False, claimed=False)
            return msgspec.structs.replace(
                row, done=tuple(done.items()), holds=(gone, *(h for h in row.holds if h is not hold))
            )

        self.change_job(data, changed)

    @rule(data=st.data(), ending=st.sampled_from(["Finished", "Suspended", "Cancelled", "Deleted", ""]))
    def ends(self, data: st.DataObject, ending: str) -> None:
        self.change_job(data, lambda row: msgspec.structs.replace(row, ending=ending))

    @rule(data=st.data())
    def is_refused(self, data: st.DataObject) -> None:
        def changed(row: JobRow) -> JobRow:
            slots = [hold for hold in row.holds if hold.slot and not hold.live]
            if not slots:
                return row
            return msgspec.structs.replace(row, refused=True, avoid=slots[0].node, avoid_until=NOW + 1)

        self.change_job(data, changed)

    def change_job(self, data: st.DataObject, change) -> None:
        jobs = list(self.world.jobs)
        if jobs:
            position = data.draw(st.integers(0, len(jobs) - 1))
            jobs[position] = change(jobs[position])
            self.world = msgspec.structs.replace(self.world, jobs=tuple(jobs))

    @rule(data=st.data(), flag=st.sampled_from(FLAGS), drained=st.booleans())
    def a_node_changes(self, data: st.DataObject, flag: str, drained: bool) -> None:
        nodes = list(self.world.nodes)
        position = data.draw(st.integers(0, len(nodes) - 1))
        taints = (Taint(key="drain", effect="NoExecute"),) if drained else ()
        fields = {flag: not getattr(nodes[position], flag), "taints": taints}
        nodes[position] = msgspec.structs.replace(nodes[position], **fields)
        self.world = msgspec.structs.replace(self.world, nodes=tuple(nodes))

    @rule(cut=st.one_of(st.none(), st.integers(0, 3)), later=st.sampled_from([0.0, 5.0, 100.0]))
    def plan(self, cut: int | None, later: float) -> None:
        before = self.world
        plan = decide(before, POLICY, NOW + later)
        again = decide(codec.decode(codec.encode(before), Snapshot), POLICY, NOW + later)
        assert codec.encode(plan) == codec.encode(again)
        remembered = self.decider.decide(before, POLICY, NOW + later)
        assert codec.encode(plan) == codec.encode(remembered.plan)
        soon = NOW + later + POLICY.rules.notice_seconds
        assert broken(remembered.cluster, remembered.steps, soon) == []
        writes = plan.writes[:cut]
        for write in writes:
            self.world = apply(self.world, write, NOW + later)
            assert overcommitted(self.world) == []
        check_slots(before, self.world)
        if cut is None:
            check_starts(before, plan)
            check_order(before, plan)
            check_quotas(before, self.world)
            check_reasons(self.world)
            check_given_up(before, plan, self.world)
            self.settles(NOW + later)

    def settles(self, now: float) -> None:
        """Deciding again and again without anything happening comes to rest."""
        world = self.world
        for _ in range(4):
            plan = decide(world, POLICY, now)
            if not plan.writes:
                return
            for write in plan.writes:
                world = apply(world, write, now)
        raise AssertionError(f"does not settle: {plan.writes}")


def check_slots(before: Snapshot, after: Snapshot) -> None:
    """New slots stand on nodes that may be used, each index once, with the devices it asks for."""
    nodes = {each.name: each for each in after.nodes}
    old = {row.uid: {(h.role, h.index, h.node) for h in row.holds if h.slot} for row in before.jobs}
    for row in after.jobs:
        slots = [hold for hold in row.holds if hold.slot]
        assert max(Counter((h.role, h.index) for h in slots).values(), default=0) <= 1
        for hold in slots:
            if (hold.role, hold.index, hold.node) not in old[row.uid]:
                where = nodes[hold.node]
                assert where.ready and where.schedulable and not where.lost and not where.taints
                assert len(hold.devices) >= hold.gpu
                shape = next(r.shape for r in FORMS[row.form].roles if r.name == hold.role)
                assert all(where.labels.get(key) == value for key, value in shape.selector)


def check_starts(before: Snapshot, plan: Plan) -> None:
    """A job that starts gets at least its minimum, and none that is to hold nothing starts."""
    rows = {row.uid: row for row in before.jobs}
    for write in plan.writes:
        if not any(isinstance(step, Start) for step in write.steps):
            continue
        row = rows[write.job.uid]
        form = FORMS[row.form]
        assert not row.ending
        have = Counter(s.role for s in write.slots for _ in IndexSet.parse(s.indices))
        done = {} if form.whole else {name: len(IndexSet.parse(text)) for name, text in row.done}
        for each in form.roles:
            assert have[each.name] + done.get(each.name, 0) >= each.minimum
        assert sum(have.values()) + sum(done.values()) >= form.minimum
        assert form.parallelism is None or sum(have.values()) <= form.parallelism


def check_order(before: Snapshot, plan: Plan) -> None:
    """No job starts while an equal one that comes before it is told to wait."""
    rows = {row.uid: row for row in before.jobs}
    starts = [rows[w.job.uid] for w in plan.writes if any(isinstance(s, Start) for s in w.steps)]
    waits = [
        rows[w.job.uid]
        for w in plan.writes
        if any(isinstance(s, Deny | Reserve) and s.code for s in w.steps)
    ]
    waits += [row for row in before.jobs if row.code and row.uid not in {w.job.uid for w in plan.writes}]
    for waiting in waits:
        for starting in starts:
            fresh = not (
                waiting.holds or waiting.done or waiting.avoid or starting.done or starting.holds
            )
            if fresh and (waiting.form, waiting.queue) == (starting.form, starting.queue):
                assert starting.order < waiting.order


def check_quotas(before: Snapshot, after: Snapshot) -> None:
    """A quota is never passed by a plan; it may have been passed already."""
    for queue in after.queues:
        if queue.limit:
            used, was = (_used(world, queue.name) for world in (after, before))
            assert used[0] <= max(queue.limit["cpu"], was[0])
            assert used[1] <= max(queue.jobs or 0, was[1])


def _used(world: Snapshot, queue: str) -> tuple[int, int]:
    lost = {each.name for each in world.nodes if each.lost}
    holds = [
        [hold for hold in row.holds if hold.node not in lost] for row in world.jobs if row.queue == queue
    ]
    return sum(hold.cpu for job in holds for hold in job), sum(bool(job) for job in holds)


def check_given_up(before: Snapshot, plan: Plan, after: Snapshot) -> None:
    """Nobody gives up a slot but for a job that does not stand behind it, has its reservation by then,
    and fits once all that is on its way out has gone; and nobody keeps less than it needs."""
    rows = {row.uid: row for row in after.jobs}
    names = {f"{row.namespace}/{row.name}": row for row in after.jobs}
    reserved: set[str] = {f"{r.namespace}/{r.name}" for r in before.jobs if r.reserved}
    for write in plan.writes:
        if write.reserved:
            reserved.add(f"{write.job.namespace}/{write.job.name}")
        for step in write.steps:
            if not (isinstance(step, Shrink | Preempt) and step.code == "Preempted"):
                continue
            giver = rows[write.job.uid]
            assert step.evidence["for"]
            for name in step.evidence["for"]:
                assert name in reserved, "its reservation is written first"
                assert names[name].reserved
                assert names[name].priority >= giver.priority
            if isinstance(step, Shrink):
                check_minimum(giver)
    room = {each.name: each.cpu for each in after.nodes}
    for row in after.jobs:
        for hold in row.holds:
            if hold.slot and hold.node in room:
                room[hold.node] -= hold.cpu
        shapes = {each.name: each.shape for each in FORMS[row.form].roles}
        for slots in row.reserved:
            room[slots.node] -= shapes[slots.role].cpu * len(IndexSet.parse(slots.indices))
    reserving = {slots.node for row in after.jobs for slots in row.reserved}
    assert all(room[name] >= 0 for name in reserving)


def check_minimum(row: JobRow) -> None:
    form, done = FORMS[row.form], dict(row.done)
    for each in form.roles:
        there = sum(hold.slot and hold.role == each.name for hold in row.holds)
        assert there + len(IndexSet.parse(done.get(each.name, ""))) >= each.minimum


def check_reasons(world: Snapshot) -> None:
    """Every job that may run and holds no slot says why, in words; every ending one holds none."""
    for row in world.jobs:
        slots = [hold for hold in row.holds if hold.slot]
        if row.ending:
            assert not slots and not row.code
        elif not slots and not _all_done(row):
            assert row.code
            assert "scheduler says" not in explain(row.code, row.evidence).sentence


def _all_done(row: JobRow) -> bool:
    form, done = FORMS[row.form], dict(row.done)
    if form.whole:
        return False
    return all(
        len(IndexSet.parse(done.get(each.name, "")))
        >= (each.minimum if each.elastic else len(IndexSet.parse(each.indices)))
        for each in form.roles
    )


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
TestSchedulerMachine.pytestmark = [pytest.mark.slow]
