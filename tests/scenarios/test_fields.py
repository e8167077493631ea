"""Every field of every kind has a test that shows its effect; one without fails here."""

import pytest

from shoal.objects.kinds import JOB, KINDS, NODE, QUEUE, Kind
from shoal.objects.schema import field_paths
from tests.control import test_metric_collector  # noqa: F401  its import registers what it shows
from tests.scenarios import (
    test_fields_job,  # noqa: F401  their import registers what they show
    test_fields_metadata,  # noqa: F401
    test_fields_node,  # noqa: F401
    test_fields_placing,  # noqa: F401
    test_fields_queue,  # noqa: F401
    test_fields_restart,  # noqa: F401
    test_fields_role,  # noqa: F401
    test_fields_sharing,  # noqa: F401
    test_fields_speed,  # noqa: F401
    test_secrets,  # noqa: F401
)
from tests.scenarios.fields import SHOWN, has, unwritten
from tests.search import test_ask_tell, test_experiments  # noqa: F401

STAMPED = {
    f"metadata.{name}"
    for name in ("uid", "resourceVersion", "generation", "created", "deleted", "submitter")
}
"""Metadata that the server writes and people cannot; `test_fields_metadata` shows that too."""

WAITING: dict[str, set[str]] = {
    "Job": {"spec.speed.application"},
    "Trial": {"spec.after"},
}
"""What no job shows: curves are known by the job that they are of, and `after` by the sampler alone
(`tests/search/test_study.py`). A field that a test shows is no longer one of them."""


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_field_is_shown(kind: Kind) -> None:
    there = {*field_paths(kind), *field_paths(kind, "metadata")} - STAMPED
    shown, waiting = SHOWN.get(kind.name, set()), WAITING.get(kind.name, set())
    assert not shown & waiting, "fields that are shown, and listed as waiting still"
    assert not waiting - there, "fields that do not exist are listed as waiting"
    there -= waiting
    assert not there - shown, "fields without a test that shows their effect on a running job"
    assert not shown - there - STAMPED, "tests show fields that do not exist"


def test_a_claim_needs_the_field_written() -> None:
    document = {"spec": {"roles": [{"name": "a"}, {"resources": {"cpu": 1}}], "suspend": False}}
    assert has(document, "spec.roles[].resources.cpu")
    assert has(document, "spec.suspend")
    assert not has(document, "spec.roles[].resources.gpu")
    assert not has(document, "spec.limits.wallTime")
    claims = [(JOB, "spec.suspend"), (QUEUE, "spec.suspend"), (NODE, "spec.lost")]
    assert unwritten(claims, [(JOB, document)]) == [("Queue", "spec.suspend"), ("Node", "spec.lost")]
