"""A worker is killed or stopped, or a machine lost: from the signal to the last survivor's next step.

G1, G2: at a random phase. G3: in the middle of a backward pass with 41 MB of gradients. G4: with its
sidecar, or launcher. G6: stopped, and continued five seconds later.
"""

from __future__ import annotations

import os
import signal
import time
from random import Random

from bench.elastic.harm import harm_anywhere, harm_in_backward, harm_machine
from bench.elastic.jobs.floor import Floor
from bench.elastic.jobs.job import Job, NotReached
from bench.elastic.jobs.shoal import Shoal
from bench.elastic.jobs.torchft import Torchft, TunedTorchft
from bench.elastic.jobs.torchrun import Nodes, StockTorchrun, Torchrun
from bench.elastic.pauses import Harming, Pauses, pauses
from bench.elastic.plan import Plan
from bench.elastic.report import Report
from bench.elastic.settings import Settings
from bench.elastic.spread import p50
from bench.elastic.subjects import subjects
from bench.elastic.timeline import Harm
from bench.row import Row

__all__ = ["kill_four", "kill_in_backward", "kill_two", "lose_machine", "stop"]

_ALL: list[type[Job]] = [Floor, Torchft, TunedTorchft, Torchrun, StockTorchrun]
_WIDE = Settings("", model="wide", pace_seconds=0.0, batch=16, samples=8192, marks_backward=True)
_STOPPED_SECONDS = 5.0


def kill_two(plan: Plan) -> Report:
    """G1."""
    return _situation(plan, "G1", "SIGKILL 1 of 2", 0.25, Settings(""), 2, Harming(harm_anywhere), _ALL)


def kill_four(plan: Plan) -> Report:
    """G2."""
    return _situation(plan, "G2", "SIGKILL 1 of 4", 0.3, Settings(""), 4, Harming(harm_anywhere), _ALL)


def kill_in_backward(plan: Plan) -> Report:
    """G3."""
    peers: list[type[Job]] = [Floor, Torchft, Torchrun]
    harming = Harming(harm_in_backward)
    return _situation(plan, "G3", "SIGKILL 1 of 4 in backward, 41 MB", 0.5, _WIDE, 4, harming, peers)


def lose_machine(plan: Plan) -> Report:
    """G4."""
    peers: list[type[Job]] = [Nodes, Torchft]
    return _situation(
        plan, "G4", "machine of 1 of 4 lost", 2.0, Settings(""), 4, Harming(harm_machine), peers
    )


def stop(plan: Plan) -> Report:
    """G6, for a stopped worker; a silent machine needs a network of its own (tests/elastic)."""
    harming = Harming(_stop, _continue, check=True)
    return _situation(plan, "G6", "SIGSTOP 1 of 4", 1.0, Settings(""), 4, harming, [Torchft])


def _situation(
    plan: Plan,
    number: str,
    what: str,
    goal: float,
    settings: Settings,
    world: int,
    harming: Harming,
    peers: list[type[Job]],
) -> Report:
    found = [pauses(plan, subject, what, settings, world, harming) for subject in subjects(plan, peers)]
    return Report(
        [_row(number, goal, ours, found) for ours in found if ours.system == Shoal.system],
        [each.line() for each in found],
        [f"- {each.situation}: {failure}" for each in found for failure in each.failures],
    )


def _row(number: str, goal: float, ours: Pauses, found: list[Pauses]) -> Row:
    beside = [each.short() for each in found if each is not ours]
    spread = f"of {len(ours.recoveries)}: no clean one"
    if ours.lost:
        middle, step = p50(ours.lost), p50([each.step_seconds for each in ours.recoveries])
        spread = f"p95 of {len(ours.lost)}; p50 {middle:.3f}, a step {step * 1000:.0f} ms"
    return Row(
        ours.situation, goal, ours.bound, "s", spread, "; ".join(beside), load=ours.load, number=number
    )


def _stop(job: Job, chance: Random) -> Harm:
    return harm_anywhere(job, chance, signal.SIGSTOP)


def _continue(job: Job, made: Harm) -> None:
    """Five seconds after the stop; the revived worker may apply nothing before it has rejoined.

    Raises:
        NotReached: it took part though it was no member.
    """
    time.sleep(max(0.0, made.at_ns / 1e9 + _STOPPED_SECONDS - time.monotonic()))
    reached = max(mark.step for trace in job.traces() for mark in trace.applied)
    continued_ns = time.monotonic_ns()
    os.kill(made.pid, signal.SIGCONT)
    job.wait_steady(job.world)
    revived = next(trace for trace in job.traces() if trace.pid == made.pid)
    stale = [mark for mark in revived.applied if mark.at_ns > continued_ns and mark.step < reached]
    if stale:
        raise NotReached(f"{job.system}: a worker that had been stopped applied {len(stale)} old steps")
