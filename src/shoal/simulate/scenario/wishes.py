"""What is expected of a decision, as it is written.

    expect:
      start: {gang: [node0, node1]}      # exactly these start, and there; in any order
      shrink: {elastic: [1]}             # its task of index 1 is told to go, and nothing else shrinks
      reserve: {large: {at: 10m}}
      deny: {greedy: TooLarge, "b*": }   # the code; a pattern stands for all jobs that it matches
      runs: {elastic: 3}                 # so many of its tasks are there afterwards, to stay
      waits: [other]                     # holds nothing
      quiet: true                        # nothing starts, stops or moves
      oneOf: [{start: [a]}, {start: [b]}]

What is listed under a step is all that takes that step; steps that are not mentioned are free. `runs`
and `waits` are about those that they name alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.simulate.scenario.spot import Spot

__all__ = ["KEYS", "STEPS", "STOP", "Details", "Expectation", "Named", "Wish", "read_expectation"]

STEPS = ("reserve", "shrink", "preempt", "move", "start", "grow", "deny")
STOP = "stop"
"""Shrinks, is preempted, or moves."""
KEYS = (*STEPS, STOP, "runs", "waits", "quiet", "oneOf")
_DETAILS = ("tasks", "indices", "nodes", "to", "within", "at", "atMost", "code", "says", "for")


@dataclass(frozen=True)
class Details:
    """Of one job's step, or of what it holds; None and empty: whatever comes."""

    tasks: int | None = None
    indices: tuple[int, ...] | None = None
    """Ascending."""
    nodes: tuple[str, ...] | None = None
    """One for each task, sorted."""
    to: tuple[str, ...] | None = None
    """Of what moves, where to; likewise."""
    within: dict[str, str] = field(default_factory=dict[str, str])
    """Labels of every node that it is on."""
    at: float | None = None
    at_most: float | None = None
    codes: tuple[str, ...] = ()
    """One of them."""
    says: tuple[str, ...] = ()
    """Words of the reason, or of the evidence."""
    beneficiary: str = ""


@dataclass(frozen=True)
class Named:
    """A job, or the jobs that a pattern matches."""

    pattern: str
    details: Details
    spot: Spot


@dataclass(frozen=True)
class Wish:
    """All that is said about one step, or about what runs or waits."""

    what: str
    named: tuple[Named, ...]
    spot: Spot


@dataclass(frozen=True)
class Expectation:
    """Of one decision. All wishes hold, nothing moves if it is to be `quiet`, and one of `one_of`."""

    wishes: tuple[Wish, ...]
    quiet: bool
    one_of: tuple[Expectation, ...]
    spot: Spot


def read_expectation(spot: Spot) -> Expectation:
    """Raises `BadInput`."""
    fields = spot.fields(KEYS)
    wishes: list[Wish] = []
    for what in (*STEPS, STOP, "runs", "waits"):
        if what in fields:
            part = fields.parts[what]
            wishes.append(Wish(what, _named(part, what), part))
    if not fields.parts:
        raise spot.wrong("nothing is expected")
    one_of = fields.get("oneOf")
    return Expectation(
        wishes=tuple(wishes),
        quiet=fields.flag("quiet", False),
        one_of=() if one_of is None else tuple(read_expectation(part) for part in one_of.items()),
        spot=spot,
    )


def _named(spot: Spot, what: str) -> tuple[Named, ...]:
    if spot.value is None:
        return ()
    if not isinstance(spot.value, dict):
        return tuple(Named(part.text(), Details(), part) for part in spot.one_or_more())
    read = _denied if what == "deny" else _details
    return tuple(Named(name, read(part), part) for name, part in spot.entries().items())


def _denied(spot: Spot) -> Details:
    """Who is denied has no tasks, so a word is the code."""
    return Details(codes=(spot.text(),)) if isinstance(spot.value, str) else _details(spot)


def _details(spot: Spot) -> Details:
    value: object = spot.value
    if value is None:
        return Details()
    if isinstance(value, list):
        items = spot.items()
        if items and all(isinstance(part.value, int) for part in items):
            return Details(indices=tuple(sorted(part.whole() for part in items)))
        return Details(nodes=tuple(sorted(part.text() for part in items)))
    if not isinstance(value, dict):
        return Details(nodes=(spot.text(),)) if isinstance(value, str) else Details(tasks=spot.whole())
    fields = spot.fields(_DETAILS)
    tasks, indices, nodes, to = (fields.get(key) for key in ("tasks", "indices", "nodes", "to"))
    return Details(
        tasks=None if tasks is None else tasks.whole(),
        indices=None if indices is None else tuple(sorted(part.whole() for part in indices.items())),
        nodes=None if nodes is None else tuple(sorted(nodes.texts())),
        to=None if to is None else tuple(sorted(to.texts())),
        within=fields.labels("within"),
        at=fields.optional_seconds("at"),
        at_most=fields.optional_seconds("atMost"),
        codes=fields.texts("code"),
        says=fields.texts("says"),
        beneficiary=fields.text("for"),
    )
