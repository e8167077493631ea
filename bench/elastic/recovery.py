"""A worker is killed, or a machine lost: from the signal to the last survivor's next step.

G1, G2: at a random phase. G3: in the middle of a backward pass with 41 MB of gradients. G4: with its
sidecar, or launcher.
"""

from __future__ import annotations

from bench.elastic.harm import harm_anywhere, harm_in_backward, harm_machine
from bench.elastic.jobs.adaptdl import Adaptdl
from bench.elastic.jobs.floor import Floor
from bench.elastic.jobs.job import Job
from bench.elastic.jobs.torchft import Torchft, TunedTorchft
from bench.elastic.jobs.torchrun import Nodes, StockTorchrun, Torchrun
from bench.elastic.pauses import Harming
from bench.elastic.plan import Plan
from bench.elastic.report import Report
from bench.elastic.settings import Settings
from bench.elastic.situation import Situation, measured

__all__ = ["kill_four", "kill_in_backward", "kill_two", "lose_machine"]

_ALL: list[type[Job]] = [Floor, Torchft, TunedTorchft, Torchrun, StockTorchrun, Adaptdl]
_WIDE = Settings("", model="wide", pace_seconds=0.0, batch=16, samples=8192, marks_backward=True)


def kill_two(plan: Plan) -> Report:
    """G1."""
    return measured(plan, Situation("G1", "SIGKILL 1 of 2", 0.25, 2, Harming(harm_anywhere)), _ALL)


def kill_four(plan: Plan) -> Report:
    """G2."""
    return measured(plan, Situation("G2", "SIGKILL 1 of 4", 0.3, 4, Harming(harm_anywhere)), _ALL)


def kill_in_backward(plan: Plan) -> Report:
    """G3."""
    what, harming = "SIGKILL 1 of 4 in backward, 41 MB", Harming(harm_in_backward)
    return measured(plan, Situation("G3", what, 0.5, 4, harming, _WIDE), [Floor, Torchft, Torchrun])


def lose_machine(plan: Plan) -> Report:
    """G4."""
    situation = Situation("G4", "machine of 1 of 4 lost", 2.0, 4, Harming(harm_machine), share=0.25)
    return measured(plan, situation, [Nodes, Torchft])
