from __future__ import annotations

from typing import Any

import pytest

from shoal.cli.failures import outcome_code, process_code, sentence
from shoal.objects.job import Job, JobSpec, JobStatus, Role
from shoal.objects.meta import Metadata


def _job(**status: Any) -> Job:
    return Job(
        metadata=Metadata(name="x", created=100.0),
        spec=JobSpec(roles=(Role(command=("x",)),)),
        status=JobStatus(**status),
    )


@pytest.mark.parametrize(
    ("status", "outcome", "process"),
    [
        ({"phase": "Succeeded", "exit_code": 0}, 0, 0),
        ({"phase": "Failed", "exit_code": 3}, 100, 3),
        ({"phase": "Failed", "exit_code": 137}, 100, 137),
        ({"phase": "Failed", "exit_code": 127}, 100, 127),
        ({"phase": "Failed"}, 100, 100),
        ({"phase": "Failed", "exit_code": -1}, 100, 100),
        ({"phase": "Failed", "exit_code": 0}, 100, 100),
        ({"phase": "Cancelled", "exit_code": 143}, 103, 103),
        ({"phase": "Running"}, 101, 101),
    ],
)
def test_exit_codes(status: dict[str, Any], outcome: int, process: int) -> None:
    job = _job(**status)
    assert (outcome_code(job), process_code(job)) == (outcome, process)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({"phase": "Succeeded", "started": 110.0, "finished": 300.0}, "succeeded after 3m10s"),
        (
            {
                "phase": "Failed",
                "started": 110.0,
                "finished": 114.0,
                "message": "worker 1 exited with 3",
            },
            "failed after 4.0s: worker 1 exited with 3",
        ),
        ({"phase": "Cancelled", "finished": 114.0}, "was cancelled before it started"),
        ({"phase": "Suspended", "started": 110.0}, "is suspended"),
    ],
)
def test_sentences(status: dict[str, Any], text: str) -> None:
    assert sentence(_job(**status), 500.0) == text
