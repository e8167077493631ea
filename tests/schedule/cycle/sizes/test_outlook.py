"""What a row says of its speed and work."""

from __future__ import annotations

import math

import msgspec
import pytest

from shoal.schedule.cycle.planner import plan
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules
from shoal.schedule.cycle.sizes.outlook import remaining, run_seconds, speed

JOB = Job(name="j", roles=(Role(minimum=2, maximum=4),), speeds=(0.0, 3.0, 4.0), work=90.0, done=30.0)
change = msgspec.structs.replace
NAN = math.nan


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"speeds": (1.0, NAN)}, "nan with 2 tasks is not a speed"),
        ({"speeds": (1.0, -2.0)}, "-2 with 2 tasks is not a speed"),
        ({"speeds": (math.inf, 1.0)}, "inf with 1 tasks is not a speed"),
        ({"speeds": (0.0, 0.0, 0.0)}, "makes no progress with 2 tasks"),
        ({"speeds": (1.0, 0.0, 3.0)}, "makes no progress with 2 tasks"),
        ({"work": NAN}, "work of nan is not an amount"),
        ({"work": 0.0}, "work of 0 is not an amount"),
        ({"work": -1.0}, "work of -1 is not an amount"),
        ({"done": NAN}, "done of nan"),
        ({"done": -1.0}, "done of -1"),
        ({"restart_seconds": -1.0}, "restart_seconds of -1"),
        ({"service_seconds": math.inf}, "service_seconds of inf"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(fields: dict[str, object], words: str) -> None:
    """By the decision, whoever made the rows."""
    cluster = Cluster(
        nodes=(Node(name="n", gpus=4),), queues=(Queue(name="default"),), jobs=(change(JOB, **fields),)
    )
    with pytest.raises(ValueError, match=f"job j.*{words}"):
        plan(cluster, Rules(), 0.0)


def test_beyond_its_curve_nothing_is_gained() -> None:
    assert [speed(JOB, tasks) for tasks in range(6)] == [0, 0, 3, 4, 4, 4]
    assert speed(change(JOB, speeds=()), 2) == 0


def test_what_is_declared_is_believed_as_long_as_it_can_be() -> None:
    assert remaining(JOB) == 60
    assert remaining(change(JOB, work=None)) is None
    assert remaining(change(JOB, done=500.0)) == 500


def test_how_long_it_runs_is_known_by_its_wall_time_or_its_work() -> None:
    assert run_seconds(JOB, 3, 0.0) == 15
    assert run_seconds(change(JOB, work=None), 3, 0.0) == math.inf
    assert run_seconds(change(JOB, wall_seconds=40.0, grace_seconds=2.0), 3, 5.0) == 42
