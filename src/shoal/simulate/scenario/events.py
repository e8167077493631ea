"""What happens later in a scenario, each followed by a decision.

events:
  - at: 30s
    gone: all                     # who was told to stop has stopped; or names, or {job: [indices]}
  - at: 10m
    submit: {name: late, gpus: 1}
    finish: [early]
    lose: [node0]                 # with all that was there; `silent`: it does not answer, no more
    back: [node1]
    resize: {elastic: 8}          # so many tasks at most; {elastic: {worker: 8}} of a role
    cancel: [other]
    expect: {start: [late]}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shoal.schedule.cycle.rows import Node
from shoal.simulate.scenario.jobs import Entry, read_jobs
from shoal.simulate.scenario.spot import Spot
from shoal.simulate.scenario.wishes import Expectation, read_expectation

__all__ = ["KEYS", "Event", "Target", "read_events"]

KEYS = ("at", "gone", "finish", "cancel", "lose", "silent", "back", "resize", "submit", "expect")


@dataclass(frozen=True)
class Target:
    """A job or a node, and where the file names it."""

    name: str
    spot: Spot
    role: str = ""
    """Of a resize; empty: the only one."""
    indices: tuple[int, ...] | None = None
    """Of those who are gone; None: all that were told to go."""
    maximum: int = 0


@dataclass(frozen=True)
class Event:
    """All that happens at one time, in the order of the fields."""

    at: float
    spot: Spot
    all_gone: bool
    gone: tuple[Target, ...]
    finish: tuple[Target, ...]
    cancel: tuple[Target, ...]
    lose: tuple[Target, ...]
    silent: tuple[Target, ...]
    back: tuple[Target, ...]
    resize: tuple[Target, ...]
    submit: tuple[Entry, ...]
    expect: Expectation | None


def read_events(spot: Spot | None, nodes: Mapping[str, Node], now: float) -> tuple[Event, ...]:
    """In order of time, none before `now`. Raises `BadInput`."""
    events: list[Event] = []
    for part in [] if spot is None else spot.items():
        event = _event(part, nodes)
        before = events[-1].at if events else now
        if event.at < before:
            raise part.wrong(f"at {event.at:g} s is before {before:g} s; events stand in their order")
        events.append(event)
    return tuple(events)


def _event(spot: Spot, nodes: Mapping[str, Node]) -> Event:
    fields = spot.fields(KEYS)
    at = fields.need("at").seconds()
    gone, submit, expect = fields.get("gone"), fields.get("submit"), fields.get("expect")

    def named(key: str) -> tuple[Target, ...]:
        part = fields.get(key)
        return () if part is None else tuple(Target(each.text(), each) for each in part.one_or_more())

    def machines(key: str) -> tuple[Target, ...]:
        found = named(key)
        for each in found:
            if each.name not in nodes:
                raise each.spot.wrong(f"there is no node {each.name}")
        return found

    all_gone = gone is not None and gone.value == "all"
    return Event(
        at=at,
        spot=spot,
        all_gone=all_gone,
        gone=() if gone is None or all_gone else _by_name(gone, _gone),
        finish=named("finish"),
        cancel=named("cancel"),
        lose=machines("lose"),
        silent=machines("silent"),
        back=machines("back"),
        resize=_resized(fields.get("resize")),
        submit=() if submit is None else tuple(read_jobs(submit, nodes, at)),
        expect=None if expect is None else read_expectation(expect),
    )


def _by_name(spot: Spot, read: Callable[[str, Spot], Target]) -> tuple[Target, ...]:
    if isinstance(spot.value, dict):
        return tuple(read(name, part) for name, part in spot.entries().items())
    return tuple(Target(part.text(), part) for part in spot.one_or_more())


def _gone(name: str, spot: Spot) -> Target:
    indices = None if spot.value is None else tuple(part.whole() for part in spot.one_or_more())
    return Target(name, spot, indices=indices)


def _resized(spot: Spot | None) -> tuple[Target, ...]:
    found: list[Target] = []
    for name, part in () if spot is None else spot.entries().items():
        if isinstance(part.value, dict):
            sizes = part.entries().items()
            found += [Target(name, size, role, maximum=size.whole(least=1)) for role, size in sizes]
        else:
            found.append(Target(name, part, maximum=part.whole(least=1)))
    return tuple(found)
