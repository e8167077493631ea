"""What must hold of a storm, whatever has happened in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.scenarios.storm.model import departures
from tests.scenarios.storm.moments import moments_of
from tests.scenarios.storm.replay import differences
from tests.scenarios.storm.tasks import claims, ran_twice
from tests.scenarios.storm.trace import JobTrace

__all__ = ["overcommitted", "problems_of"]


def problems_of(trace: JobTrace, output: Path) -> list[str]:
    """Of one job: incarnations that ran twice or that nobody knows of, counters that the rules do not
    give, and how a simulated run of its trace differs."""
    folder = output / "default" / trace.last.metadata.uid
    known = {(end.role, end.index, end.incarnation) for end in trace.ends}
    found = [f"ran twice: {name}" for name in ran_twice(folder)]
    found += [f"ran, and no node knows of it: {claim}" for claim in claims(folder) - known]
    found += (
        [f"on two nodes: {len(trace.ends)} ends of {len(known)}"] if len(trace.ends) > len(known) else []
    )
    found += [f"has not ended: {end}" for end in trace.ends if end.outcome is None]
    found += departures(trace.versions[0].job.spec, moments_of(trace))
    return [f"{trace.name}: {line}" for line in (*found, *differences(trace))]


def overcommitted(traces: Sequence[JobTrace], millis: Mapping[str, int]) -> list[str]:
    """Moments at which tasks held more thousandths of a core than their node has, by its own stamps."""
    changes: list[tuple[float, int, str]] = []
    for trace in traces:
        cpu = {role.name: int(role.resources.cpu) for role in trace.last.spec.roles}
        for end in trace.ends:
            changes.append((end.admitted, cpu[end.role], end.node))
            changes.append((end.ended, -cpu[end.role], end.node))
    held = dict.fromkeys(millis, 0)
    found: list[str] = []
    for at, change, node in sorted(changes):
        held[node] += change
        if held[node] > millis[node]:
            found.append(f"{node} gave {held[node]} of {millis[node]} at {at}")
    return found
