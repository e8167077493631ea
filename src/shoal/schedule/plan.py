"""What a decision says: steps with their reasons, and the writes that carry them out.

The writes stand in an order that is safe to cut after any of them: reservations come first, then what
only gives back, and no write takes capacity that an earlier one has not made free. One write changes
one job.
"""

from __future__ import annotations

from typing import Any

from shoal.objects.errors import Invalid
from shoal.objects.job import Slots
from shoal.objects.meta import Part, Stamp
from shoal.objects.nearest import did_you_mean
from shoal.schedule.cycle.peers.named import POLICIES
from shoal.schedule.cycle.rows import Rules

__all__ = [
    "POLICIES",
    "Deny",
    "Grow",
    "JobName",
    "Move",
    "Plan",
    "Policy",
    "Preempt",
    "Reserve",
    "Shrink",
    "Start",
    "Step",
    "Write",
    "policy_named",
]


class Policy(Part, frozen=True, kw_only=True):
    """How to decide."""

    rules: Rules = Rules()
    regrow_seconds: float = 10.0
    """A job whose tasks start again together grows only so long after its last change, so that
    capacity that comes free bit by bit costs one restart and not many."""
    avoid_seconds: float = 2.0
    """A node that refused a job is avoided so long for that job, doubling with its failures."""
    refresh: int = 0
    """Deny again so many waiting jobs whose code is the same but whose numbers have changed."""


def policy_named(name: str, *, edition: int = Rules().edition) -> Policy:
    """The policy of that name; `edition`: see `Rules`.

    Raises:
        Invalid: there is none.
    """
    if name not in POLICIES:
        known = ", ".join(POLICIES)
        raise Invalid(f"there is no policy {name}: there are {known}{did_you_mean(name, POLICIES)}")
    return Policy(rules=Rules(policy=name, edition=edition))


class JobName(Part, frozen=True, kw_only=True):
    """Which job."""

    namespace: str
    name: str
    uid: str


class Start(Part, frozen=True, kw_only=True, tag_field="step", tag=True):
    """A job that held no slots gets these."""

    slots: tuple[Slots, ...]
    code: str = "Started"
    evidence: dict[str, Any] = {}


class Grow(Part, frozen=True, kw_only=True, tag_field="step", tag=True):
    """A job gets these slots beside those that it has."""

    slots: tuple[Slots, ...]
    code: str = "Grown"
    evidence: dict[str, Any] = {}


class Shrink(Part, frozen=True, kw_only=True, tag_field="step", tag=True):
    """These slots are given back: their indices have ended, or are wanted no more (Finished, Shrunk,
    Suspended, Cancelled, Deleted), cannot stay where they are (NodeDrained, NodeLost, Refused), or are
    given up for a job of higher priority (Preempted)."""

    slots: tuple[Slots, ...]
    code: str
    evidence: dict[str, Any] = {}


class Move(Part, frozen=True, kw_only=True, tag_field="step", tag=True):
    """The same indices on other nodes, because they cannot stay."""

    slots: tuple[Slots, ...]
    to: tuple[Slots, ...]
    code: str
    evidence: dict[str, Any] = {}


class Preempt(Part, frozen=True, kw_only=True, tag_field="step", tag=True):
    """All slots are taken back against the job's will; it waits again."""

    slots: tuple[Slots, ...]
    code: str
    evidence: dict[str, Any] = {}


class Reserve(Part, frozen=True, kw_only=True, tag_field="step", tag=True):
    """These slots are kept for the job though it cannot start yet: what is there now has to go first."""

    slots: tuple[Slots, ...]
    code: str
    evidence: dict[str, Any] = {}


class Deny(Part, frozen=True, kw_only=True, tag_field="step", tag=True):
    """The job waits, and why; an empty code: nothing holds it back any more."""

    code: str
    evidence: dict[str, Any] = {}


Step = Start | Grow | Shrink | Move | Preempt | Reserve | Deny


class Write(Part, frozen=True, kw_only=True):
    """One change of one job's `allocation` and `scheduling`."""

    job: JobName
    generation: int
    """Of the spec that was decided on."""
    allocation: int
    """The id of the slots that were decided on."""
    steps: tuple[Step, ...]
    slots: tuple[Slots, ...] | None = None
    """All slots from now on; None: they stay as they are."""
    reason: str = ""
    """Goes with `slots`."""
    code: str = ""
    evidence: dict[str, Any] = {}
    reserved: tuple[Slots, ...] = ()
    """All that is reserved for the job from now on."""
    promised: Stamp | None = None
    """When it starts at the latest, from now on."""
    place: tuple[Slots, ...] = ()
    """Where it starts then."""


class Plan(Part, frozen=True, kw_only=True):
    """What to do now; see the module's docstring for the order."""

    writes: tuple[Write, ...] = ()
    again_at: Stamp | None = None
    """When to decide again though nothing changes; None: not before something does."""
