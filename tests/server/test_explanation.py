"""Why a job that runs has fewer tasks than it may have."""

from __future__ import annotations

from contextlib import closing

import msgspec
import pytest

from shoal.history.memory import MemoryHistory
from shoal.history.recorder import Recorder, about
from shoal.objects.job import Allocation, Job, JobSpec, JobStatus, Role, Slots
from shoal.objects.kinds import JOB
from shoal.objects.meta import Metadata
from shoal.schedule.explain import explain
from shoal.server.explanation import explanation_of
from shoal.store.memory import MemoryStore
from shoal.testing.clock import VirtualClock

SLOWER = {"best": 2, "speed": 9.16, "most": 4, "with_most": 7.954}
TAKEN = {"for": ["default/report"], "tasks": 2, "left": 2}


def job(indices: str) -> Job:
    role = Role(name="worker", replicas=4, min_replicas=1, command=("true",))
    slots = (Slots(role="worker", indices=indices, node="a"),)
    return Job(
        metadata=Metadata(name="train", uid="u1"),
        spec=JobSpec(roles=(role,), runtime="elastic"),
        status=JobStatus(phase="Running", allocation=Allocation(id=3, slots=slots)),
    )


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ((), "there is no room for more, or its queue has none"),
        (("Grown",), "there is no room for more, or its queue has none"),
        (("Grown", "Slower", "Grown"), "there is no room for more, or its queue has none"),
        (("Slower", "Preempted"), "2 tasks give up their places for default/report; 2 go on"),
        (
            ("Grown", "Slower"),
            "it makes 9.16 steps a second with 2 tasks and 7.95 with 4, so that it is given no more "
            "for now",
        ),
    ],
)
def test_the_last_thing_that_was_done_to_it_says_why(steps: tuple[str, ...], said: str) -> None:
    train, clock = job("0-1"), VirtualClock()
    with closing(MemoryHistory()) as history:
        recorder = Recorder(history, clock)
        for number, code in enumerate(steps):
            clock.advance(1)
            evidence = {"Slower": SLOWER, "Preempted": TAKEN}.get(code, {})
            data = {"code": code, "evidence": evidence}
            recorder.decision(about(train), str(number), code, explain(code, evidence).sentence, data)
        why = explanation_of(JOB, train, store=MemoryStore(), history=history, cluster=None)
        full = explanation_of(JOB, job("0-3"), store=MemoryStore(), history=history, cluster=None)
    assert why.message == f"it runs with 2 of at most 4 tasks of role worker: {said}"
    slower = steps[-1:] == ("Slower",)
    assert why.remedy == (
        "declare its speed.curve if that is wrong; else scale it to 2"
        if slower
        else "it grows by itself when there is room"
    )
    assert full.message == ""
    assert msgspec.json.encode(why)
