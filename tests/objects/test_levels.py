"""Levels of the topology: what a cluster may be told, and what jobs may name."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.objects.admit import admit
from shoal.objects.job import Job
from shoal.objects.job_rules import levels_problem, unknown_levels
from shoal.objects.paths import spell
from tests.objects.documents import job


@pytest.mark.parametrize(
    ("levels", "problem"),
    [
        ((), ""),
        (("block", "example.com/rack"), ""),
        (("rack", "node"), "node is always the last level: leave it out"),
        (("rack", "block", "rack"), "the level rack is named twice"),
        (("rack", ""), "'' is not a label key: [prefix/]name, the name at most 63 letters, digits and "
         "-_. with a letter or digit at both ends"),
    ],
)  # fmt: skip
def test_levels_of_a_cluster(levels: tuple[str, ...], problem: str) -> None:
    assert levels_problem(levels) == problem


def unknown(levels: tuple[str, ...], **spec: Any) -> dict[str, str]:
    made = admit(job(**spec))
    assert isinstance(made, Job)
    return {spell(finding.path): finding.message for finding in unknown_levels(made.spec, levels)}


def test_each_level_that_is_not_there_is_named() -> None:
    levels = ("block", "rack")
    assert unknown(levels, topology={"required": "rack", "preferred": "node", "spread": "block"}) == {}
    role = {"command": ["a"], "topology": {"preferred": "host"}}
    assert unknown(levels, topology={"required": "rak"}, roles=[role]) == {
        "spec.topology.required": "the topology has no level rak: there are block, rack, node; "
        "did you mean rack?",
        "spec.roles[0].topology.preferred": "the topology has no level host: "
        "there are block, rack, node",
    }


def test_a_cluster_that_was_told_of_none_has_its_nodes() -> None:
    assert unknown((), topology={"spread": "node"}) == {}
    (message,) = unknown((), topology={"spread": "rack"}).values()
    assert message == "the topology has no level rack: there is node"
