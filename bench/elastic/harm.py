"""When and whom a signal hits. The driver's only randomness: seeded, and printed by the command."""

from __future__ import annotations

import os
import random
import signal
import time

from bench.elastic.jobs.apart import Apart
from bench.elastic.jobs.job import Job, NotReached
from bench.elastic.marks import Trace
from bench.elastic.timeline import Harm, step_seconds

__all__ = ["harm_anywhere", "harm_in_backward", "harm_machine", "unplug"]


def harm_anywhere(job: Job, chance: random.Random, how: signal.Signals = signal.SIGKILL) -> Harm:
    """Signal a random worker at a random phase of a step; rank 0 is as likely as any."""
    victim = chance.choice(_at_work(job))
    _wait_a_phase(victim, chance)
    return _signal(job, [victim.pid], how)


def harm_in_backward(job: Job, chance: random.Random, deadline_seconds: float = 30) -> Harm:
    """Kill a random worker inside its backward pass, where the gradients are reduced.

    Raises:
        NotReached: it has begun none in time.
    """
    victim = chance.choice(_at_work(job))
    # from its begin to the return of the step
    spans = [victim.marks[-1].at_ns - victim.events["backward"]]
    deadline, seen = time.monotonic() + deadline_seconds, victim.events["backward"]
    while victim.events["backward"] == seen or len(spans) < 5:
        if time.monotonic() > deadline:
            raise NotReached(f"{job.system}: no backward pass within {deadline_seconds:.0f} s")
        time.sleep(0.0005)
        job.traces()
        if victim.marks[-1].at_ns > victim.events["backward"] > seen and len(spans) < 5:
            spans.append(victim.marks[-1].at_ns - victim.events["backward"])
            seen = victim.events["backward"]
    time.sleep(chance.uniform(0.05, 0.9) * max(0.0, sorted(spans)[len(spans) // 2] / 1e9))
    return _signal(job, [victim.pid], signal.SIGKILL)


def harm_machine(job: Job, chance: random.Random, how: signal.Signals = signal.SIGKILL) -> Harm:
    """Signal a random worker and whatever serves it alone (its sidecar, its launcher) at once."""
    victim = chance.choice([trace for trace in _at_work(job) if job.may_lose_machine_of(trace.pid)])
    _wait_a_phase(victim, chance)
    return _signal(job, [victim.pid, *job.served_by(victim.pid)], how)


def unplug(job: Apart, chance: random.Random) -> Harm:
    """Pull the cable of a random worker out at a random phase of a step."""
    victim = chance.choice(_at_work(job))
    _wait_a_phase(victim, chance)
    at_ns = time.monotonic_ns()
    job.plug(victim.name, connected=False)
    return Harm(victim.pid, at_ns, job.world)


def _wait_a_phase(victim: Trace, chance: random.Random) -> None:
    time.sleep(chance.uniform(0, 2 * max(0.001, step_seconds(victim.applied[-20:]))))


def _at_work(job: Job) -> list[Trace]:
    workers = [trace for trace in job.alive() if trace.applied]
    if len(workers) < job.world:
        raise NotReached(f"{job.system}: {len(workers)} of {job.world} workers are at work")
    return workers


def _signal(job: Job, pids: list[int], how: signal.Signals) -> Harm:
    at_ns = time.monotonic_ns()
    for pid in pids:
        os.kill(pid, how)
    return Harm(pids[0], at_ns, job.world, replaced=job.heals)
