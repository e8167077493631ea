"""What the pages say about scenario files is so."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from shoal.schedule.cycle.rows import Rules
from shoal.simulate.scenario import events, jobs, nodes, queues, whole, wishes
from shoal.simulate.scenario.rules import typed
from tests.simulate.scenario.small import played

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "design" / "simulator.md").read_text().split("## Scenarios")[1]
KEYS = {
    "file": whole.KEYS,
    "nodes": nodes.KEYS,
    "queues": queues.KEYS,
    "jobs": jobs.KEYS,
    "events": events.KEYS,
    "rules": tuple(typed(field.name) for field in msgspec.structs.fields(Rules)),
    "expect": wishes.KEYS,
}


@pytest.mark.parametrize("place", KEYS)
def test_every_key_is_on_the_page(place):
    words = set(re.findall(r"[A-Za-z]+", " ".join(re.findall(r"`([^`]+)`", PAGE))))
    assert not set(KEYS[place]) - words


def test_the_example_of_the_command_line_is_one(tmp_path):
    (example,) = re.findall(r"```yaml\n(nodes:.*?)```", (DOCS / "cli.md").read_text(), re.DOTALL)
    decisions = played(tmp_path, example)
    assert [each.at for each in decisions] == [0, 60, 90]
    assert {job.name: len(job.present) for job in decisions[-1].after.jobs} == {
        "experiment": 4,
        "serving": 1,
    }
