"""A scenario's file, read."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from shoal.objects.errors import Invalid
from shoal.objects.yaml_events import parse_documents
from shoal.schedule.cycle.rows import Cluster, Rules
from shoal.simulate.errors import BadInput
from shoal.simulate.scenario.events import Event, read_events
from shoal.simulate.scenario.jobs import Entry, read_jobs
from shoal.simulate.scenario.nodes import read_nodes
from shoal.simulate.scenario.queues import read_queues
from shoal.simulate.scenario.rules import read_rules
from shoal.simulate.scenario.sound import check_jobs, check_queues
from shoal.simulate.scenario.spot import Spot
from shoal.simulate.scenario.wishes import Expectation, read_expectation

__all__ = ["KEYS", "Scenario", "open_file", "read_scenario"]

KEYS = (
    "description",
    "now",
    "levels",
    "nodes",
    "shared",
    "queues",
    "jobs",
    "rules",
    "stops",
    "until",
    "expect",
    "events",
)


@dataclass(frozen=True)
class Scenario:
    """What stands in one file."""

    name: str
    """Of the file, without its ending."""
    description: str
    now: float
    cluster: Cluster
    """With the jobs that are there at `now`."""
    rules: Rules
    expect: Expectation | None
    """Of the decision at `now`."""
    events: tuple[Event, ...]
    entries: tuple[Entry, ...]
    """All jobs, those too that come later."""
    stops: float | None
    """Seconds that a task takes to stop; None: until the file says that it is gone."""
    until: float
    """The last moment at which a decision is made."""


def read_scenario(path: Path) -> Scenario:
    """Raises `BadInput` with one sentence and the line for whatever cannot be used."""
    spot = open_file(path)
    fields = spot.fields(KEYS)
    now = fields.seconds("now")
    nodes = read_nodes(fields.need("nodes"))
    by_name = {node.name: node for node in nodes}
    queues = fields.get("queues")
    cluster = Cluster(
        nodes=nodes,
        levels=fields.texts("levels"),
        queues=read_queues(queues),
        shared=fields.counts("shared"),
    )
    check_queues(queues, cluster)
    there = fields.get("jobs")
    first = [] if there is None else read_jobs(there, by_name, 0.0)
    events = read_events(fields.get("events"), by_name, now)
    submitted = tuple(chain.from_iterable(event.submit for event in events))
    for entry in (*(each for each in first if each.job.created > now), *submitted):
        if entry.job.tasks or entry.job.reserved:
            raise entry.spot.wrong(f"{entry.job.name} comes later, and can be nowhere yet")
    entries = (*first, *submitted)
    check_jobs(entries, cluster)
    expect = fields.get("expect")
    arrivals = [entry.job.created for entry in entries]
    return Scenario(
        name=path.stem,
        description=fields.text("description"),
        now=now,
        cluster=cluster,
        rules=read_rules(fields.get("rules")),
        expect=None if expect is None else read_expectation(expect),
        events=events,
        entries=entries,
        stops=fields.optional_seconds("stops"),
        until=fields.seconds("until", max([now, *arrivals, *(event.at for event in events)])),
    )


def open_file(path: Path) -> Spot:
    """The one document of a file. Raises `BadInput`."""
    try:
        documents, problems = parse_documents(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except Invalid as error:
        raise BadInput(f"{path}: {error.message}", hint=error.hint) from error
    if problems:
        raise BadInput(f"{path}, line {problems[0].line}: {problems[0].message}")
    if len(documents) != 1:
        raise BadInput(f"{path} holds {len(documents)} documents; a scenario is one")
    return Spot(documents[0].value, (), documents[0], str(path))
