"""Nobody gets more than it may have, nobody loses what is guaranteed, and exchanges come to an end.

**The end of exchanges**: what others give up for a beneficiary makes the potential of `shares.standing`
fall, if what was idle of its ask is counted as used before; or leaves it as it was, where all are of one
queue. So no row of plans can come back to where it began while nobody comes or ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.columns import Columns
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.invariants.replay import amounts_of, given, replay, role_of, told
from shoal.schedule.cycle.needs import Kinds
from shoal.schedule.cycle.rows import Cluster, Job, Task
from shoal.schedule.cycle.steps import Move, Plan, Preempt, Reserve, Shrink, Step
from shoal.schedule.shares.ledger import Ledger
from shoal.schedule.shares.standing import idle_part, potential
from shoal.schedule.shares.users import UserCaps

__all__ = ["wrong"]

_SLACK = 1e-6


def wrong(cluster: Cluster, plan: Plan, soon: Stamp) -> list[str]:
    """Sentences."""
    if not any(given(step) or told(step) for step in plan.steps):
        return []
    rights = _Rights(cluster)
    return [
        *rights.beyond_limits(plan),
        *rights.unlawful(plan),
        *rights.below_guarantees(plan),
        *rights.endless(plan, soon),
    ]


class _Rights:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._columns = Columns(cluster)
        self._kinds = Kinds(self._columns)
        self._jobs = {job.name: job for job in cluster.jobs}
        self._asked: dict[str, Asked] = {}

    def beyond_limits(self, plan: Plan) -> Iterator[str]:
        """Of queues and users, counting those who are told to go until they are gone."""
        columns = self._columns
        ledger, users = self._ledger(), UserCaps(columns.tree, columns.user_caps)
        for job in self._cluster.jobs:
            if job.tasks:
                amounts = self._of(job, job.tasks, new=True)
                ledger.charge(self._queue(job), amounts)
                users.charge(self._queue(job), job.user, amounts)
        for step, job, _ in replay(self._cluster, plan):
            if not given(step):
                continue
            amounts, queue = self._of(job, given(step), new=not job.tasks), self._queue(job)
            for refused in (users.refusal(queue, job.user, amounts), ledger.refusal(queue, amounts)):
                if refused is not None:
                    what = self._columns.names[refused.resource]
                    yield (
                        f"{job.name} is given {refused.asked:g} {what}: {refused.rule}, "
                        f"{refused.used:g} of {refused.bound:g} are in use"
                    )
            ledger.charge(queue, amounts)
            users.charge(queue, job.user, amounts)

    def unlawful(self, plan: Plan) -> Iterator[str]:
        """Who never gives way, and who does not for this one."""
        tree, fenced = self._columns.tree, self._columns.quotas.fenced
        for step, victim, other in self._exchanges(plan):
            said = f"{victim.name} gives way for {other.name}"
            if not victim.preemptible or any(not task.preemptible for task in told(step)):
                yield f"{said}, and need not give way for anybody"
            if isinstance(step, Move):
                continue
            mine, theirs = tree.fork(self._queue(other), self._queue(victim))
            if not mine or not theirs:
                equal = isinstance(step, Shrink) or step.code == "TurnOver"
                if victim.priority > other.priority or (victim.priority == other.priority and not equal):
                    yield f"{said}, which is of its queue and not of higher priority"
            elif isinstance(step, Preempt) and any(fenced[node] for node in mine):
                yield f"{said}, which is inside a fence"

    def below_guarantees(self, plan: Plan) -> Iterator[str]:
        """Of queues that a victim is in and its beneficiary is not, once the plan is done."""
        queues = self._cluster.queues
        if not any(queue.guaranteed for queue in queues):
            return
        after = dict(self._jobs)
        for _, _, job in replay(self._cluster, plan):
            after[job.name] = job
        ledger = self._ledger()
        for job in after.values():
            kept = [task for task in job.reserved if task not in job.present]
            ledger.charge(self._queue(job), self._of(job, (*job.present, *kept), new=False))
        for step, victim, other in self._exchanges(plan):
            if isinstance(step, Move):
                continue
            lost = {name for task in told(step) for name in amounts_of(role_of(victim, task))}
            _, theirs = self._columns.tree.fork(self._queue(other), self._queue(victim))
            for node in theirs:
                for at, name in enumerate(self._columns.names):
                    owed = queues[node].guaranteed.get(name, 0.0)
                    if name in lost and ledger.use[node][at] < owed - _SLACK:
                        yield (
                            f"{victim.name} gives way for {other.name}, and leaves queue "
                            f"{queues[node].name} {ledger.use[node][at]:g} {name} of {owed:g} that it "
                            "is guaranteed"
                        )

    def endless(self, plan: Plan, soon: Stamp) -> Iterator[str]:
        """The potential falls, one beneficiary after the other."""
        ledger = self._ledger()
        dropped = self._dropped(plan)
        for job in self._cluster.jobs:
            there = () if job.present and job.since + job.longest_seconds <= soon else job.present
            ledger.charge(self._queue(job), self._of(job, there, new=False))
            if job.name not in dropped:
                ledger.charge(self._queue(job), self._of(job, job.reserved, new=False))
        for step in plan.steps:
            if isinstance(step, Shrink | Preempt) and not step.beneficiary:
                # given back for no one: whoever gets it has taken it from nobody
                job = self._jobs[step.job]
                if not (job.since + job.longest_seconds <= soon):
                    ledger.charge(self._queue(job), self._of(job, step.tasks, new=False), -1)
        victims: dict[str, list[tuple[Step, Job]]] = {}
        for step, victim, other in self._exchanges(plan):
            if not isinstance(step, Move):
                victims.setdefault(other.name, []).append((step, victim))
        for step in plan.steps:
            if not (isinstance(step, Reserve) and step.tasks):
                continue
            job = self._jobs[step.job]
            queue, ask = self._queue(job), self._of(job, step.tasks, new=False)
            if step.job not in victims:
                if job.name in dropped or not job.reserved:
                    ledger.charge(queue, ask)  # it is kept a place before those who come after it
                continue
            if job.reserved and job.name not in dropped:
                ledger.charge(queue, self._of(job, job.reserved, new=False), -1)
            before = ledger.copy()
            before.charge(queue, idle_part(before, ask))
            ledger.charge(queue, ask)
            moved = False
            for given_up, victim in victims[step.job]:
                amounts = self._of(victim, told(given_up), new=False)
                ledger.charge(self._queue(victim), amounts, -1)
                bounded = any(
                    amount and math.isfinite(ledger.capacity[at]) for at, amount in enumerate(amounts)
                )
                # surplus may go to where there is room for it, which changes nothing
                moved |= bounded and victim.queue != job.queue and isinstance(given_up, Preempt)
            low, high = potential(ledger), potential(before)
            if not (low < high or (low == high and not moved)):
                names = ", ".join(sorted({victim.name for _, victim in victims[step.job]}))
                yield f"the potential does not fall as {names} give way for {job.name}"

    def _dropped(self, plan: Plan) -> set[str]:
        """Who was kept a place, and leaves it to others, also if it is kept another instead; or starts
        there, which may be after others were served."""
        kept = {
            step.job
            for step in plan.steps
            if isinstance(step, Reserve) and step.tasks == self._jobs[step.job].reserved
        }
        return {job.name for job in self._cluster.jobs if job.reserved} - kept

    def _exchanges(self, plan: Plan) -> Iterator[tuple[Step, Job, Job]]:
        for step in plan.steps:
            if isinstance(step, Shrink | Preempt | Move) and step.beneficiary:
                yield step, self._jobs[step.job], self._jobs[step.beneficiary]

    def _ledger(self) -> Ledger:
        columns = self._columns
        return Ledger(columns.quotas, columns.quotas.nominal * 0.0, columns.capacity)

    def _queue(self, job: Job) -> int:
        return self._columns.queue_at[job.queue]

    def _of(self, job: Job, tasks: Sequence[Task], *, new: bool) -> tuple[float, ...]:
        asked = self._asked.get(job.name)
        if asked is None:
            asked = self._asked[job.name] = Asked(job, self._columns, self._kinds)
        return asked.ask(asked.counts(tasks), new=new)
