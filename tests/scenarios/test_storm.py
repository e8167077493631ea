"""Jobs of every kind, and at random moments the server, an agent or a supervisor is killed; `make soak`
runs storms of 200 jobs and 75 kills, each with a new seed.

The seed is printed; SHOAL_STORM_SEED plays the same plan again (SHOAL_STORM_JOBS, SHOAL_STORM_KILLS and
SHOAL_STORM_SECONDS: how much of it, and over how long). Every job must come out as a simulated run of
its recorded trace does, no incarnation may run twice, and nothing may be left.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from shoal.objects import codec
from shoal.objects.kinds import NODE
from shoal.testing.chaos import Chaos
from shoal.testing.local import LocalHome, nodes
from tests.scenarios.storm import leaks
from tests.scenarios.storm.people import People
from tests.scenarios.storm.plan import draw
from tests.scenarios.storm.play import Hail, play
from tests.scenarios.storm.trace import Tape, read_ends
from tests.scenarios.storm.verdict import overcommitted, problems_of

pytestmark = [pytest.mark.process, pytest.mark.slow]

NODES = {"a": 1000, "b": 1000, "c": 1000, "d": 1000}
"""Thousandths of a core that each node is declared to have: enough for some forty tasks at once."""

MOST_DESCRIPTORS = 4
"""By so many more than before a component may have open: connections come and go."""


def number(name: str, default: int) -> int:
    return int(os.environ.get(f"SHOAL_STORM_{name}", "") or default)


@pytest.mark.timeout(900)
def test_a_storm(tmp_path: Path):
    storm(tmp_path, number("SEED", 1), number("JOBS", 12), number("KILLS", 6), number("SECONDS", 6))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_storms_without_end(tmp_path: Path):
    """SHOAL_STORM_ROUNDS storms, one after the other, each of its own seed."""
    first = number("SEED", 0) or random.SystemRandom().randrange(1, 1 << 32)
    for turn in range(number("ROUNDS", 60)):
        folder = tmp_path / str(turn)
        folder.mkdir()
        storm(folder, first + turn, number("JOBS", 200), number("KILLS", 75), number("SECONDS", 120))


def storm(folder: Path, seed: int, jobs: int, kills: int, seconds: int) -> None:
    print(f"SHOAL_STORM_SEED={seed} SHOAL_STORM_JOBS={jobs} SHOAL_STORM_KILLS={kills}")
    declared = nodes(**{name: {"cpu": millis} for name, millis in NODES.items()})
    with LocalHome(folder / "home", declared, server=True) as local:
        home = local.home
        people, chaos, tape = People(home.path), Chaos(home, seed=seed), Tape(home)
        plan = draw(seed, jobs, seconds)
        people.until(lambda: len(people.client.list(NODE).records) == len(NODES), "every node is known")
        with Hail(chaos, kills, seconds) as hail:
            play(people, tape, plan, hail, 3.0 * seconds + 120.0)
        people.until(lambda: not chaos.supervisors(), "every task has ended")
        tape.copy()
        traces = list(tape.jobs(read_ends(home)))
        (folder / "traces.json").write_bytes(codec.encode(traces))
        print(Counter(blow.whom.partition(" of ")[0] for blow in chaos.blows))
        print(Counter(trace.last.status.phase for trace in traces))
        assert len(traces) == jobs
        # on a busy machine what a late blow is aimed at may have ended
        assert len(chaos.blows) > kills // 2
        problems = [line for trace in traces for line in problems_of(trace, home.output)]
        assert not problems, f"{len(problems)}, traces in {folder}:\n" + "\n".join(problems)
        assert not overcommitted(traces, NODES)
        people.delete_all()
        people.until(lambda: not leaks.of_tasks(chaos), lambda: str(leaks.of_tasks(chaos)))
        check_descriptors(local, people)
        people.close()
    assert not leaks.when_down(local.home)


def check_descriptors(local: LocalHome, people: People) -> None:
    """A component that has had many tasks has no more open than one that has had few."""
    components = ("server", *NODES)
    before = {name: (local.pid(name), leaks.descriptors(local.pid(name))) for name in components}
    role = {"command": ["true"], "resources": {"cpu": "50m"}}
    for turn in range(2):
        people.create(f"many-{turn}", {"roles": [role], "array": {"indices": "0-14"}})
        people.finished(f"many-{turn}")
        people.delete_all()
    for name, (pid, count) in before.items():
        assert local.pid(name) == pid
        people.until(
            lambda pid=pid, most=count + MOST_DESCRIPTORS: leaks.descriptors(pid) <= most,
            f"{name} had {count} descriptors open and has more now",
        )
