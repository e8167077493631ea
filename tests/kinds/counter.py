"""The kind Counter: counts up to a number, one step at a time. One of the two files of a toy kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from shoal.objects.codec import changed_fields
from shoal.objects.columns import AGE, NAME, Column
from shoal.objects.kind import Kind, Outcome, State, Verb
from shoal.objects.meta import Condition, Object, Part, Stamp
from shoal.objects.paths import Finding
from shoal.objects.quantities import Seconds


class CounterSpec(Part, frozen=True, kw_only=True):
    """What people ask for."""

    until: Annotated[int, msgspec.Meta(ge=0, le=1000)]
    """The number to count to."""
    step: int = 1
    """Added each time."""
    every: Seconds = Seconds(0.05)
    """Time between two steps."""
    cancelled: bool = False
    """True: it counts no further."""


class CounterStatus(Part, frozen=True, kw_only=True):
    """Written by the counter controller."""

    phase: Literal["Counting", "Done", "Cancelled"] = "Counting"
    value: int = 0
    """How far it has come."""
    finished: Stamp = 0.0
    conditions: tuple[Condition, ...] = ()
    observed_generation: int = 0
    writers: dict[str, int] = {}


class Counter(Object, frozen=True, kw_only=True):
    """Counts up to a number."""

    spec: CounterSpec
    status: CounterStatus = CounterStatus()
    kind: str = "Counter"


def _check(counter: Counter) -> Iterator[Finding]:
    if counter.spec.step < 1:
        yield Finding(("spec", "step"), f"must be greater than 0; found {counter.spec.step}")


def _check_change(old: Counter, new: Counter) -> Iterator[Finding]:
    if "step" in changed_fields(old.spec, new.spec):
        yield Finding(("spec", "step"), "cannot be changed after creation")


def _state(counter: Counter) -> State:
    status, until = counter.status, counter.spec.until
    return State(
        phase=status.phase,
        code="NotThereYet" if status.phase == "Counting" else "",
        message=f"it has counted to {status.value} of {until}",
        remedy="it counts on by itself" if status.phase == "Counting" else "",
        evidence={"value": status.value, "until": until},
    )


def _outcome(counter: Counter) -> Outcome | None:
    if counter.status.phase == "Counting":
        return None
    return Outcome(
        result="succeeded" if counter.status.phase == "Done" else "cancelled",
        started=counter.metadata.created,
        finished=counter.status.finished,
    )


def cancelled(counter: Counter) -> Counter:
    """The counter, counting no further."""
    if _outcome(counter) is not None:
        return counter
    return msgspec.structs.replace(counter, spec=msgspec.structs.replace(counter.spec, cancelled=True))


COUNTER = Kind(
    name="Counter",
    plural="counters",
    aliases=("cnt",),
    struct=Counter,
    status_writers={"counter": ("*",)},
    check=_check,
    check_change=_check_change,
    columns=(
        NAME,
        Column("PHASE", lambda counter, now: counter.status.phase),
        Column("VALUE", lambda counter, now: f"{counter.status.value}/{counter.spec.until}"),
        AGE,
        Column("STEP", lambda counter, now: str(counter.spec.step), wide=True),
    ),
    phases=("Counting", "Done", "Cancelled"),
    state=_state,
    outcome=_outcome,
    verbs={"cancel": Verb(cancelled, "is being cancelled", "has finished already")},
)

KINDS = (COUNTER,)
