"""Rows that change as time goes by: jobs come, end, change size; nodes are lost; plans are done."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from shoal.objects.meta import Stamp
from shoal.schedule.core.usage import UsageLedger
from shoal.schedule.cycle.rows import Cluster, Job, Node, Role, Rules, Task
from shoal.schedule.cycle.steps import Deny, Grow, Move, Plan, Preempt, Reserve, Shrink, Start, Step
from shoal.schedule.decide import planner_for
from shoal.simulate.cluster import rules as law
from shoal.simulate.cluster.broken import Broken
from shoal.simulate.cluster.held import Held, role_of, size_of

__all__ = ["NODE_DRAINED", "TURN_OVER", "WALL_TIME", "Plans", "World"]

NODE_DRAINED = "NodeDrained"
"""Code of a step that takes tasks off nodes that they may not be on any more, even below a minimum."""

TURN_OVER = "TurnOver"
"""Code of a preemption after which a job is behind those that wait already."""
RESIZED = "Resized"
"""Code of a shrink that gives tasks to jobs which gain more by them."""
WALL_TIME = "WallTime"
"""Code of a preemption after which a job does not come back."""

Plans = Callable[[Cluster, Rules, Stamp], Plan]


class World:
    """A cluster under `rules`. All methods raise `Broken` where a plan breaks a rule, KeyError where a
    job or node is not known. What is told of twice (a lost node, a cancelled job) changes nothing."""

    def __init__(self, cluster: Cluster, rules: Rules, plans: Plans | None = None) -> None:
        self.rules = rules
        self.nodes: dict[str, Node] = {node.name: node for node in cluster.nodes}
        self.jobs: dict[str, Job] = {}
        self.held = Held(cluster)
        self._cluster = cluster
        self._rows = cluster.nodes
        self.plans = plans or _remembering(rules)
        """Who decides."""
        self._usage = UsageLedger(rules.half_life_seconds)
        self._acted = cluster.acted
        self._ending: set[str] = set()
        for job in cluster.jobs:
            self.held.keep(job, job.reserved, +1)
            if job.tasks:
                self.held.begin(job)
            for task in job.tasks:
                self.held.take(job, task)
            self.jobs[job.name] = job

    @property
    def cluster(self) -> Cluster:
        """The rows as they are, jobs in the order in which they came."""
        return msgspec.structs.replace(
            self._cluster, nodes=self._rows, jobs=tuple(self.jobs.values()), acted=self._acted
        )

    def plan(self, now: Stamp) -> Plan:
        """What the planner would do now; nothing is done."""
        usage = self._usage.look(self.jobs.values(), now)
        return self.plans(msgspec.structs.replace(self.cluster, usage=usage), self.rules, now)

    def decide(self, now: Stamp) -> Plan:
        """What the planner does now, done."""
        plan = self.plan(now)
        self.apply(plan, now)
        return plan

    def apply(self, plan: Plan, now: Stamp) -> int:
        """Step by step, so that what is before a step that is refused is done. How many changed a row:
        those that repeat what is so already, or only say why somebody waits, do not. What is guaranteed
        to queues is looked at in the end, when what starts in the plan is there."""
        kept = {step.job for step in plan.steps if isinstance(step, Reserve)}
        changes = 0
        for step in plan.steps:
            if isinstance(step, Deny) and self._waits(step.job):
                continue
            changes += self.carry_out(step, now)
            if isinstance(step, Deny) and step.job not in kept:
                # it waits, and nobody says that its place is kept, or until when
                changes += self._change(step.job, reserved=(), promised=None, place=())
        for step in plan.steps:
            if isinstance(step, Shrink | Preempt) and step.beneficiary:
                self._check_guaranteed(step)
        return changes

    def _waits(self, name: str) -> bool:
        """It holds nothing, and nothing is kept for it or promised: to be told why changes nothing."""
        job = self.jobs.get(name)
        return job is not None and not (job.tasks or job.reserved or job.promised is not None)

    def carry_out(self, step: Step, now: Stamp) -> bool:
        """One step; whether a row is another now."""
        before = self.jobs.get(step.job)
        self._carry_out(step, now)
        after = self.jobs[step.job]
        return after is not before and after != before

    def submit(self, job: Job) -> None:
        """A job comes."""
        if job.name in self.jobs:
            raise KeyError(f"there is a job {job.name}")
        if job.tasks or job.reserved:
            raise ValueError(f"{job.name} has tasks before it was submitted")
        self.jobs[job.name] = job

    def finish(self, name: str, now: Stamp) -> None:
        """The job has ended, with all its tasks, those that were stopping too."""
        self._ending.discard(name)
        self._gone(self.jobs[name], self.jobs[name].tasks, now)
        self._change(name, reserved=())
        del self.jobs[name]

    def gone(self, name: str, tasks: Iterable[Task] | None = None) -> None:
        """Those of its tasks that were told to go are gone: these, or all. A job that has none left
        waits again, as old as it is; unless it was cancelled, or its time was up: then it has ended."""
        job = self.jobs[name]
        stopping = [task for task in job.tasks if task.stopping]
        if tasks is not None:
            named = {(task.role, task.index) for task in tasks}
            stopping = [task for task in stopping if (task.role, task.index) in named]
        self._gone(job, stopping, None)

    def lose(self, name: str, now: Stamp) -> None:
        """A node is lost, with all that was on it."""
        self.silent(name)
        for job in list(self.jobs.values()):
            there = [task for task in job.tasks if task.node == name]
            if there:
                self._gone(job, there, now)

    def silent(self, name: str) -> None:
        """A node does not answer; what was on it may be there still, and holds what it held."""
        self._answers(name, False)

    def back(self, name: str) -> None:
        """A node answers again."""
        self._answers(name, True)

    def resize(self, name: str, role: str, maximum: int, minimum: int | None = None) -> None:
        """The job may have so many tasks of a role from now on."""
        job = self.jobs[name]

        def resized(each: Role) -> Role:
            least = min(each.minimum, maximum) if minimum is None else minimum
            return msgspec.structs.replace(each, maximum=maximum, minimum=least)

        roles = tuple(resized(each) if each.name == role else each for each in job.roles)
        if roles == job.roles and role not in {each.name for each in roles}:
            raise KeyError(f"{name} has no role {role}")
        self._put(job, roles=roles, minimum=min(job.minimum, sum(role.maximum for role in roles)))

    def report(self, name: str, done: float, service_seconds: float) -> None:
        """How far the job is, and how long its tasks have run."""
        self._change(name, done=done, service_seconds=service_seconds)

    def cancel(self, name: str) -> None:
        """The job is told to end: it is gone at once if it holds nothing, else with its last task."""
        job = self.jobs[name]
        if not job.tasks:
            self._change(name, reserved=())
            del self.jobs[name]
            return
        self._told_to_go(job, job.present)
        self._change(name, suspended=True)
        self._ending.add(name)

    def _carry_out(self, step: Step, now: Stamp) -> None:
        job = self.jobs.get(step.job)
        if job is None:
            raise Broken(f"{type(step).__name__} of {step.job}: there is no such job")
        if not isinstance(step, Reserve | Deny):
            self._acted = now
        match step:
            case Reserve():
                self._put(job, reserved=step.tasks)
                if step.at is not None:
                    self._change(job.name, promised=step.at, place=step.place)
            case Shrink():
                left = self._give(job, step)
                if step.code == RESIZED:
                    left = self._put(left, resized=now)
                own = step.beneficiary == job.name  # what it lacks is what it makes room for
                lacks = law.below(left, {task.role for task in step.tasks} if own else None)
                if step.code == NODE_DRAINED:
                    law.check_drained(job, step.tasks, self.nodes)
                if lacks and not step.beneficiary and (step.code == NODE_DRAINED or law.below(job)):
                    self._put(left, below_since=now if left.below_since is None else left.below_since)
                elif lacks:
                    raise Broken(f"{job.name} shrinks to {lacks}: that is less than its minimum")
            case Preempt():
                if self._give(job, step).present:
                    raise Broken(f"{job.name} is preempted, and some of its tasks stay")
                if step.code == TURN_OVER:
                    self._change(job.name, waits_since=now)
                elif step.code == WALL_TIME:
                    self._ending.add(job.name)
            case Move():
                self._check_beneficiary(step.job, step.beneficiary, step.tasks)
                law.check_taken(job, step.tasks)
                self._told_to_go(job, step.tasks)
                self._put(self.jobs[job.name], reserved=step.to)
            case Start():
                if job.tasks:
                    raise Broken(f"{job.name} starts, and holds {len(job.tasks)} tasks already")
                self.held.begin(job)
                self._there(job, step.tasks, now)
                self._change(job.name, resized=None)
            case Grow():
                if not job.present:
                    raise Broken(f"{job.name} grows, and holds nothing")
                self._there(job, step.tasks, now)
                self._change(job.name, resized=now)
            case Deny():
                if job.present and not law.below(job):
                    raise Broken(f"{job.name} is told that it waits, and has its minimum")
            case _:
                raise Broken(f"{step.job}: nobody knows what {type(step).__name__} means")

    def _answers(self, name: str, ready: bool) -> None:
        self.nodes[name] = msgspec.structs.replace(self.nodes[name], ready=ready)
        self._rows = tuple(self.nodes.values())

    def _give(self, job: Job, step: Shrink | Preempt) -> Job:
        self._check_beneficiary(step.job, step.beneficiary, step.tasks)
        law.check_taken(job, step.tasks)
        return self._told_to_go(job, step.tasks)

    def _check_guaranteed(self, step: Shrink | Preempt) -> None:
        job = self.jobs[step.job]
        given = {name for task in step.tasks for name in size_of(role_of(job, task))}
        self.held.queues.check_guaranteed(job, sorted(given), self.jobs[step.beneficiary])

    def _check_beneficiary(self, victim: str, name: str, tasks: tuple[Task, ...]) -> None:
        """Who takes must have been given the slots before: else a stop here would kill for nobody. A job
        may give way to itself: tasks of one role to another that it cannot do without."""
        if not name:
            return
        job = self.jobs.get(name)
        if job is None:
            raise Broken(f"{victim} gives way for {name}, which there is not")
        if not job.reserved:
            raise Broken(f"{victim} gives way for {name}, which has no slots reserved")
        roles = {task.role for task in tasks}
        if name == victim and not roles.isdisjoint(task.role for task in job.reserved):
            raise Broken(f"{victim} gives way for itself")

    def _there(self, job: Job, tasks: tuple[Task, ...], now: Stamp) -> None:
        if job.suspended:
            raise Broken(f"{job.name} is suspended, and gets tasks")
        if not tasks:
            raise Broken(f"{job.name} gets no tasks")
        for task in tasks:
            if task.stopping:
                raise Broken(f"{job.name}/{task.role}-{task.index} is stopping before it is there")
            law.check_node(job, task, self.nodes.get(task.node))
            self.held.take(job, task)
        since = job.since if job.tasks else now
        after = self._put(
            job,
            tasks=job.tasks + tasks,
            since=since,
            reserved=(),
            promised=None,
            place=(),
            below_since=None,
        )
        law.check_counts(after)
        law.check_domains(after, self.nodes, self._cluster.levels)
        self.held.queues.check_limits(after)

    def _told_to_go(self, job: Job, tasks: tuple[Task, ...]) -> Job:
        names = {(task.role, task.index) for task in tasks}
        for task in job.present:
            if (task.role, task.index) in names:
                self.held.told_to_go(job, task)
        after = tuple(
            msgspec.structs.replace(task, stopping=True) if (task.role, task.index) in names else task
            for task in job.tasks
        )
        return self._put(job, tasks=after)

    def _gone(self, job: Job, tasks: Iterable[Task], now: Stamp | None) -> None:
        """`now`: the tasks did not go because they were told to."""
        names = {(task.role, task.index) for task in tasks}
        if not names:
            return
        for task in job.tasks:
            if (task.role, task.index) in names:
                self.held.release(job, task)
        left = tuple(task for task in job.tasks if (task.role, task.index) not in names)
        if not left:
            self.held.end(job)
        after = self._put(job, tasks=left)
        if not left and job.name in self._ending:
            self._change(job.name, reserved=())
            del self.jobs[job.name]
            self._ending.discard(job.name)
        elif not after.present:
            self._put(after, below_since=None)
        elif now is not None and after.below_since is None and law.below(after):
            self._put(after, below_since=now)

    def _change(self, name: str, **changes: object) -> bool:
        before = self.jobs[name]
        return self._put(before, **changes) is not before

    def _put(self, job: Job, **changes: object) -> Job:
        """A row that stays as it is stays the same object: planners remember rows by that."""
        if all(getattr(job, name) == value for name, value in changes.items()):
            self.jobs[job.name] = job
            return job
        after = msgspec.structs.replace(job, **changes)
        if "reserved" in changes:
            self.held.keep(job, job.reserved, -1)
            self.held.keep(after, after.reserved, +1)
        self.jobs[job.name] = after
        return after


def _remembering(rules: Rules) -> Plans:
    """A planner that keeps what rows come to."""
    planner = planner_for(rules)

    def plans(cluster: Cluster, rules: Rules, now: Stamp) -> Plan:
        planner.rules = rules
        return planner.plan(cluster, now)

    return plans
