"""Clusters, queues and jobs of all kinds, drawn from a seed, and what happens to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.schedule.cycle.invariants import broken
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules
from shoal.schedule.cycle.steps import Deny, Plan
from shoal.simulate.cluster.world import World

__all__ = ["Chance", "Kinds"]


@dataclass(frozen=True, kw_only=True)
class Kinds:
    """Which kinds of things there are; each can be left out to find what matters."""

    nodes: int = 6
    queues: bool = True
    elastic: bool = True
    priorities: bool = True
    roles: bool = True
    walls: bool = True
    racks: bool = True
    fractions: bool = True
    licences: bool = True
    fixed: bool = True
    """Some jobs cannot be preempted."""
    losses: bool = True
    resizes: bool = True
    waiting: int = 12
    """So many wait at most: beyond, jobs end instead of coming."""


class Chance:
    """A world, and events. Every draw is of one generator: equal seeds are equal runs."""

    def __init__(self, seed: int, kinds: Kinds | None = None) -> None:
        self.kinds = kinds or Kinds()
        self._draw = np.random.default_rng(seed)
        self.now = 0.0
        self.count = 0
        self.log: list[str] = []
        self.submitted: dict[str, float] = {}
        self.world = World(self._cluster(), Rules(starving_seconds=300.0, stale_seconds=30.0))
        self.before = self.world.cluster
        """The rows that the last plan was made from."""
        self.last = Plan()

    def event(self) -> None:
        """Something happens, and a decision follows."""
        self.now += float(self._draw.exponential(20.0))
        getattr(self, f"_{self._which()}")()
        self.decide()

    def decide(self) -> int:
        """One decision; how many rows it changed."""
        self.before = self.world.cluster
        self.last = self.world.plan(self.now)
        wrong = broken(self.before, self.last, self.now + self.world.rules.notice_seconds)
        assert not wrong, wrong
        self.log += [f"{self.now:.0f} {_short(step)}" for step in self.last.steps if _tells(step)]
        return self.world.apply(self.last, self.now)

    def settle(self, rounds: int = 60) -> None:
        """Those told to go are gone, again and again, until no plan changes anything any more. Raises
        AssertionError where that takes too long."""
        for _ in range(rounds):
            stopping = self.all_gone()
            if not self.decide() and not stopping and not self._stopping():
                return
        raise AssertionError(f"after {rounds} rounds there is still something to do: {self.log[-12:]}")

    def drain(self) -> None:
        """Nobody comes any more, nodes are back, jobs end one by one: all who can start do."""
        for name in self.world.nodes:
            self.world.back(name)
        self.settle()
        while self.world.jobs:
            running = [job.name for job in self.world.jobs.values() if job.present]
            if running:
                self._finish()
            else:
                never = {step.job: step.code for step in self.last.steps if isinstance(step, Deny)}
                for name in list(self.world.jobs):
                    code = never.get(name, "nothing is said")
                    assert code in _NEVER, f"{name} waits on an idle cluster: {code}"
                    self.world.cancel(name)
            self.now += 60.0
            self.settle()

    def all_gone(self) -> bool:
        """Whether there was anybody."""
        stopping = self._stopping()
        for name in stopping:
            self.world.gone(name)
        return bool(stopping)

    # what there is

    def _cluster(self) -> Cluster:
        kinds = self.kinds
        nodes = tuple(
            Node(
                name=f"n{at}",
                gpus=int(self._draw.choice([2, 4, 8])),
                amounts={"cpu": 16},
                labels={"rack": f"r{at % 3}"} if kinds.racks else {},
            )
            for at in range(kinds.nodes)
        )
        levels = ("rack",) if kinds.racks else ()
        shared = {"licence": 3} if kinds.licences else {}
        return Cluster(nodes=nodes, queues=self._queues(), levels=levels, shared=shared)

    def _queues(self) -> tuple[Queue, ...]:
        if not self.kinds.queues:
            return (Queue(name="default"),)
        return (
            Queue(name="one", weight=2.0),
            Queue(name="two"),
            Queue(name="a", parent="one", nominal={"gpu": 6, "cpu": 30}, guaranteed={"gpu": 2}),
            Queue(name="b", parent="one", nominal={"gpu": 4, "cpu": 20}, limit={"gpu": 12}),
            Queue(name="c", parent="two", nominal={"gpu": 8, "cpu": 30}, borrowing={"gpu": 6}),
            Queue(name="d", parent="two", weight=0.5, user_limit={"gpu": 8}, jobs=6),
        )

    def _job(self) -> Job:
        kinds, draw = self.kinds, self._draw
        self.count += 1
        gpus = int(draw.choice([0, 1, 1, 2]))
        share = 0
        if kinds.fractions and draw.random() < 0.2:
            gpus, share = 0, int(draw.choice([250, 500, 700]))
        least = int(draw.choice([1, 1, 2, 4]))
        most = least + (int(draw.integers(1, 5)) if kinds.elastic and draw.random() < 0.5 else 0)
        worker = Role(minimum=least, maximum=most, gpus=gpus, share=share, amounts={"cpu": 1})
        roles = (worker,)
        if kinds.roles and draw.random() < 0.2:
            roles = (Role(name="server", amounts={"cpu": 2}), worker)
        leaves = [queue.name for queue in self.world.cluster.queues if queue.name not in ("one", "two")]
        return Job(
            name=f"j{self.count:04d}",
            queue=str(draw.choice(leaves)),
            user=str(draw.choice(["ann", "bob"])),
            priority=int(draw.choice([0, 0, 0, 10, 20])) if kinds.priorities else 0,
            created=self.now,
            roles=roles,
            preemptible=not (kinds.fixed and draw.random() < 0.1),
            wall_seconds=float(draw.choice([300, 900])) if kinds.walls and draw.random() < 0.6 else None,
            required="rack" if kinds.racks and draw.random() < 0.1 else "",
            preferred="rack" if kinds.racks and draw.random() < 0.2 else "",
            shared={"licence": 1} if kinds.licences and draw.random() < 0.1 else {},
        )

    # what happens

    def _which(self) -> str:
        waiting = sum(not job.tasks for job in self.world.jobs.values())
        names = ["submit", "finish", "gone", "wait", "cancel"]
        weights = [40.0 if waiting < self.kinds.waiting else 0.0, 25.0, 20.0, 3.0, 2.0]
        if self.kinds.losses:
            names += ["lose", "back"]
            weights += [2.0, 4.0]
        if self.kinds.resizes:
            names += ["resize"]
            weights += [4.0]
        chances = np.array(weights)
        return str(self._draw.choice(names, p=chances / chances.sum()))

    def _submit(self) -> None:
        job = self._job()
        self.log.append(f"{self.now:.0f} submit {job.name}")
        self.submitted[job.name] = self.now
        self.world.submit(job)

    def _finish(self) -> None:
        if name := self._one_of([job.name for job in self.world.jobs.values() if job.present]):
            self.log.append(f"{self.now:.0f} finish {name}")
            self.world.finish(name, self.now)

    def _gone(self) -> None:
        if name := self._one_of(self._stopping()):
            job = self.world.jobs[name]
            tasks = [task for task in job.tasks if task.stopping]
            some = tasks[: int(self._draw.integers(1, len(tasks) + 1))]
            self.log.append(f"{self.now:.0f} gone {name} {len(some)} of {len(tasks)}")
            self.world.gone(name, some)

    def _wait(self) -> None:
        self.now += 200.0

    def _cancel(self) -> None:
        if name := self._one_of(list(self.world.jobs)):
            self.log.append(f"{self.now:.0f} cancel {name}")
            self.world.cancel(name)

    def _lose(self) -> None:
        if name := self._one_of([node.name for node in self.world.nodes.values() if node.ready]):
            dead = self._draw.random() < 0.7
            self.log.append(f"{self.now:.0f} {'lose' if dead else 'silent'} {name}")
            if dead:
                self.world.lose(name, self.now)
            else:
                self.world.silent(name)

    def _back(self) -> None:
        if name := self._one_of([node.name for node in self.world.nodes.values() if not node.ready]):
            self.log.append(f"{self.now:.0f} back {name}")
            self.world.back(name)

    def _resize(self) -> None:
        if name := self._one_of(list(self.world.jobs)):
            role = self.world.jobs[name].roles[-1]
            most = role.minimum + int(self._draw.integers(0, 5))
            self.log.append(f"{self.now:.0f} resize {name} to {most}")
            self.world.resize(name, role.name, most)

    def _stopping(self) -> list[str]:
        jobs = self.world.jobs.values()
        return [job.name for job in jobs if any(task.stopping for task in job.tasks)]

    def _one_of(self, names: list[str]) -> str:
        return names[int(self._draw.integers(len(names)))] if names else ""


_NEVER = {"TooLarge", "TooFarApart", "NoNodeSuits", "Limit", "Borrowing", "UserCap", "NotPreemptible"}
"""What holds a job on an idle cluster: it asks for more than there is, or than it may have."""


def _tells(step: object) -> bool:
    return not isinstance(step, Deny)


def _short(step: object) -> str:
    tasks = getattr(step, "tasks", ())
    places = " ".join(f"{task.role[0]}{task.index}@{task.node}{list(task.gpus)}" for task in tasks)
    for_whom = getattr(step, "beneficiary", "")
    text = f"{type(step).__name__} {getattr(step, 'job', '')} {places} {getattr(step, 'code', '')}"
    return text + (f" for {for_whom}" if for_whom else "")
