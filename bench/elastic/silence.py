"""A worker or its whole machine falls silent and comes back after five seconds (G6).

A stopped worker is seen by its sidecar. A silent machine is not seen by anybody on it: either all of its
processes are stopped, or its cable is pulled out; connections stay open, and nothing answers. When it is
back, it may at most end the pass that it was in; it counts again when it has joined again.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from random import Random

from bench.elastic.harm import harm_anywhere, harm_machine, unplug
from bench.elastic.jobs.apart import Apart, can_be_made
from bench.elastic.jobs.job import Job, NotReached
from bench.elastic.jobs.torchft import Torchft
from bench.elastic.pauses import Harming
from bench.elastic.plan import Plan
from bench.elastic.report import Report, merge
from bench.elastic.situation import Situation, measured, measured_for
from bench.elastic.subjects import Subject
from bench.elastic.timeline import Harm

__all__ = ["silence", "stop"]

_AWAY_SECONDS = 5.0
_GOAL_SECONDS = 1.0


def stop(plan: Plan) -> Report:
    """A stopped worker."""
    harming = Harming(_stop, _continue, check=True)
    situation = Situation("G6", "SIGSTOP 1 of 4", _GOAL_SECONDS, 4, harming, share=0.25)
    return measured(plan, situation, [Torchft])


def silence(plan: Plan) -> Report:
    """A silent machine: Shoal alone, to torchft the first is the same as a stopped worker."""
    still = Situation(
        "G6",
        "all of 1 of 4 stopped",
        _GOAL_SECONDS,
        4,
        Harming(_stop_all, _continue, check=True),
        share=0.25,
    )
    if not can_be_made():
        told = "- Cables are pulled out in network namespaces, which cannot be made here: not measured."
        return merge([measured(plan, still, []), Report(remarks=[told])])
    pulled = Situation(
        "G6",
        "cable of 1 of 4 pulled out",
        _GOAL_SECONDS,
        4,
        Harming(_unplug, _plug, check=True),
        share=0.25,
    )
    apart = Subject(Apart.system, lambda settings, world: Apart(settings, world, plan.python))
    return merge([measured(plan, still, []), measured_for(plan, pulled, [apart])])


def _stop(job: Job, chance: Random) -> Harm:
    return harm_anywhere(job, chance, signal.SIGSTOP)


def _stop_all(job: Job, chance: Random) -> Harm:
    return harm_machine(job, chance, signal.SIGSTOP)


def _continue(job: Job, made: Harm) -> None:
    def go_on() -> None:
        for pid in (made.pid, *job.served_by(made.pid)):
            os.kill(pid, signal.SIGCONT)

    _revive(job, made, go_on)


def _unplug(job: Job, chance: Random) -> Harm:
    assert isinstance(job, Apart)
    return unplug(job, chance)


def _plug(job: Job, made: Harm) -> None:
    assert isinstance(job, Apart)
    (name,) = (trace.name for trace in job.traces() if trace.pid == made.pid)
    _revive(job, made, lambda: job.plug(name, connected=True))


def _revive(job: Job, made: Harm, do: Callable[[], None]) -> None:
    """Five seconds after the harm; returns when the worker is a member again.

    Raises:
        NotReached: it took part though it was no member, or did not come back.
    """
    time.sleep(max(0.0, made.at_ns / 1e9 + _AWAY_SECONDS - time.monotonic()))
    reached = max(mark.step for trace in job.traces() for mark in trace.applied)
    revived = next(trace for trace in job.traces() if trace.pid == made.pid)
    own = revived.applied[-1].step
    revived_ns = time.monotonic_ns()
    do()
    job.wait_steady(job.world)
    later = [mark.step for mark in revived.applied if mark.at_ns > revived_ns]
    # what was under way in it may end, on a state that nobody sees
    stale = [step for step in later if step < reached and step != own + 1]
    if stale:
        raise NotReached(f"{job.system}: a worker that had been silent applied {len(stale)} old steps")
