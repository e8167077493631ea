"""Explanations: running jobs with fewer tasks than they may have, and waiting jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.client import Client
from shoal.client.reports import Explanation
from shoal.clock import SystemClock
from shoal.cluster.base import Listing
from shoal.cluster.simulated import Script, SimulatedCluster, run_for
from shoal.control.queue_usage import QueueController
from shoal.history.recorder import Recorder, about
from shoal.objects.account import RoleBinding
from shoal.objects.job import Allocation, Job, JobSpec, JobStatus, Resources, Role, Slots
from shoal.objects.kinds import JOB, QUEUE
from shoal.objects.meta import Metadata
from shoal.objects.node import Capacity
from shoal.objects.quantities import CpuMillis
from shoal.objects.queue import Amounts, Queue, QueueSpec, Quota
from shoal.objects.task import TaskSpec
from shoal.schedule.explain import explain
from shoal.server.event_recorder import HistoryRecorder
from shoal.server.reports import explanation_of, find_task, reports_of, usage_report
from shoal.store.base import SYSTEM
from shoal.testing.clock import VirtualClock
from shoal.testing.plane import Plane, capacity
from tests.server.harness import LiveServer, a_job
from tests.support.memory_history import MemoryHistory

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
        why = explanation_of(JOB, train, history=history, cluster=None, control=None)
        full = explanation_of(JOB, job("0-3"), history=history, cluster=None, control=None)
    assert why.message == f"it runs with 2 of at most 4 tasks of role worker: {said}"
    slower = steps[-1:] == ("Slower",)
    assert why.remedy == (
        "declare its speed.curve if that is wrong; else scale it to 2"
        if slower
        else "it grows by itself when there is room"
    )
    assert full.message == ""
    assert msgspec.json.encode(why)


def waiting_plane() -> Plane:
    """One node of 4 cores, full; `report` runs in queue `lent`, and two jobs wait in other queues."""
    plane = Plane({"n0": capacity(4)}, run_for(None))
    plane.store.create(
        Queue(
            metadata=Metadata(name="owned", namespace=""),
            spec=QueueSpec(nominal=Amounts(cpu=CpuMillis(4000))),
        ),
        actor=SYSTEM,
    )
    plane.submit(sized("report", cpu=4, preemptible=False))
    plane.advance(1)
    plane.submit(sized("older", cpu=3))
    plane.advance(1)
    plane.submit(sized("newer", cpu=3, queue="owned"))
    plane.advance(5)
    return plane


def sized(name: str, cpu: int, **spec: object) -> Job:
    role = Role(command=("true",), resources=Resources(cpu=CpuMillis(cpu * 1000)))
    return a_job(name, roles=(role,), **spec)


def explained(plane: Plane, name: str) -> Explanation:
    return explanation_of(
        JOB, plane.job(name), history=None, cluster=plane.cluster, control=plane.context
    )


def test_jobs_ahead_stand_in_the_order_of_the_last_decision() -> None:
    """The newer job goes first: it asks for no more than its queue's nominal quota."""
    plane = waiting_plane()
    assert explained(plane, "older").ahead == ("default/newer",)
    assert explained(plane, "newer").ahead == ()


def test_a_cancelled_job_is_not_ahead() -> None:
    plane = waiting_plane()
    plane.edit("newer", cancelled=True)
    plane.context.cache(JOB).sync()
    assert explained(plane, "older").ahead == ()


@pytest.mark.parametrize("edit", [{"cancelled": True}, {"suspend": True}], ids=["ended", "suspended"])
def test_a_job_that_holds_nothing_now_is_not_named_as_a_holder(edit: dict[str, bool]) -> None:
    """The evidence in the status is written again only when its code changes."""
    plane = waiting_plane()
    assert "default/report" in explained(plane, "older").message
    job = plane.job("older")
    plane.edit("report", **edit)
    plane.advance(1)
    told = explanation_of(JOB, job, history=None, cluster=plane.cluster, control=plane.context)
    assert "default/report" in job.status.scheduling.message
    assert "default/report" not in told.message
    assert told.evidence["holders"] == []
    assert told.remedy == "it starts when running jobs finish or are preempted"


def test_the_amounts_of_a_limit_are_those_of_the_moment() -> None:
    """The status of `c` keeps the number of the decision that gave it its code."""
    plane = Plane({"n0": capacity(4), "n1": capacity(4)}, run_for(None))
    usage = QueueController(plane.context)
    quota = Quota(cpu=CpuMillis(6000))
    for name, spec in (
        ("lab", QueueSpec(quota=quota)),
        ("nlp", QueueSpec(parent="lab", nominal=Amounts(cpu=CpuMillis(4000)))),
    ):
        metadata = Metadata(name=name, namespace="")
        plane.store.create(Queue(metadata=metadata, spec=spec), actor=SYSTEM)
    for name, count, cpu in (("a", 4, 1), ("b", 3, 1), ("c", 2, 3)):
        role = Role(command=("true",), replicas=count, resources=Resources(cpu=CpuMillis(cpu * 1000)))
        plane.submit(a_job(name, roles=(role,), queue="nlp"))
        plane.advance(5)
    for name in ("lab", "nlp"):
        usage.reconcile(("", name), plane.clock.now())
    plane.context.cache(QUEUE).sync()
    assert "queue lab uses 4 CPU of its limit of 6 CPU" in explained(plane, "c").message
    plane.edit("a", cancelled=True)
    plane.advance(20)
    assert plane.job("b").status.phase == "Running"
    for name in ("lab", "nlp"):
        usage.reconcile(("", name), plane.clock.now())
    plane.context.cache(QUEUE).sync()
    told = explained(plane, "c")
    assert "queue lab uses 3 CPU of its limit of 6 CPU" in told.message
    assert told.evidence["used"] == 3000


class CountingCluster(SimulatedCluster):
    """Counts the calls that ask nodes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.calls: Counter[str] = Counter()

    def list(self) -> Listing:
        self.calls["list"] += 1
        return super().list()


class CountingPlane(Plane):
    def make_cluster(
        self, nodes: dict[str, Capacity], behave: Callable[[TaskSpec], Script]
    ) -> SimulatedCluster:
        return CountingCluster(self.clock, nodes, behave)


@pytest.mark.parametrize("tasks", [1, 200])
def test_reads_answer_from_the_cache_of_tasks(tasks: int) -> None:
    plane = CountingPlane({"n0": capacity(tasks), "n1": capacity(tasks)}, run_for(None))
    role = Role(command=("true",), replicas=2 * tasks, resources=Resources(cpu=CpuMillis(1000)))
    plane.submit(a_job("wide", roles=(role,)))
    plane.advance(5)
    assert isinstance(plane.cluster, CountingCluster)
    plane.cluster.calls.clear()
    assert len(explained(plane, "wide").tasks) == 2 * tasks
    report = usage_report(plane.cluster, plane.context.tasks, "", 0.0)
    assert [node.tasks for node in report.nodes] == [tasks, tasks]
    assert len(reports_of(plane.cluster, plane.context.tasks.all())) == 2 * tasks
    assert find_task(plane.context.tasks, plane.job("wide"), "", 2 * tasks - 1)
    assert plane.cluster.calls == {}


def test_preempted_tasks_and_their_event_name_the_job_that_gets_their_places() -> None:
    plane = Plane({"n0": capacity(4)}, run_for(None))
    role = Role(command=("true",), replicas=3, resources=Resources(cpu=CpuMillis(1000)))
    plane.submit(a_job("train", roles=(role,), runtime="torchrun", priority="experiment"))
    plane.advance(1)
    urgent = a_job("urgent", roles=(role,), runtime="torchrun", priority="production")
    metadata = msgspec.structs.replace(urgent.metadata, namespace="team-b")
    plane.submit(msgspec.structs.replace(urgent, metadata=metadata))
    plane.until(lambda: bool(plane.job("train").status.allocation.beneficiaries))
    train = plane.job("train")
    assert train.status.allocation.beneficiaries == ("team-b/urgent",)
    plane.advance(0.2)
    said = [message for name, code, message in plane.notes if (name, code) == ("train", "Preempted")]
    assert "3 tasks (3 cpu) give up their places for team-b/urgent" in said
    assert plane.named == {"team-b/urgent"}
    conditions = {each.type: each.message for each in plane.job("train").status.conditions}
    assert conditions["Preempting"] in ("its places are taken for team-b/urgent", "")

    clock = VirtualClock()
    with closing(MemoryHistory()) as history:
        recorder = Recorder(history, clock)
        evidence = {"for": ["team-b/urgent", "default/x"], "tasks": 3, "left": 0}
        sentence = explain("Preempted", evidence).sentence
        data = {"code": "Preempted", "evidence": evidence}
        recorder.decision(about(train), "1", "Preempted", sentence, data)
        for message in said:
            recorder.event(about(train), "Preempted", message)

        def shown(namespaces: set[str]) -> Explanation:
            return explanation_of(
                JOB,
                train,
                history=history,
                cluster=None,
                control=None,
                readable=namespaces.__contains__,
            )

        everything = shown({"default", "team-b"})
        own = shown({"default"})
    assert any("for team-b/urgent" in each.message for each in everything.events)
    assert not [part for part in str(msgspec.to_builtins(own)).split() if "urgent" in part]
    assert any("places for a job of another namespace" in each.message for each in own.events)
    assert own.decisions[0].data["evidence"]["for"] == ["default/x", "1 job of another namespace"]


def test_jobs_of_namespaces_that_may_not_be_read_are_counted() -> None:
    plane = waiting_plane()
    full = explained(plane, "older")
    assert any("default/" in str(value) for value in full.evidence.values()) or full.ahead
    hidden = explanation_of(
        JOB,
        plane.job("older"),
        history=None,
        cluster=plane.cluster,
        control=plane.context,
        readable=lambda _namespace: False,
    )
    text = str(msgspec.to_builtins(hidden))
    assert "default/" not in text
    assert "of another namespace" in text or "of other namespaces" in text


@pytest.mark.slow
def test_events_name_only_jobs_that_their_reader_may_know(tmp_path: Path) -> None:
    live = LiveServer(tmp_path / "home", tcp=True)
    with closing(live):
        job = live.store.create(a_job("train", "mine"), actor=SYSTEM)
        clock = SystemClock()
        recorder = HistoryRecorder(
            Recorder(live.history, clock), SimulatedCluster(clock, {}, run_for(None))
        )
        names = ("other/urgent", "mine/next", "other/urgent-2")
        recorder.event(
            job, "Preempted", f"3 tasks give up their places for {', '.join(names)}", warning=False,
            at=1.0, jobs=names,
        )  # fmt: skip
        texts: dict[str, str] = {}
        for person, spaces in (("one", ("mine",)), ("two", ("mine", "other"))):
            bindings = tuple(RoleBinding(role="viewer", namespace=space) for space in spaces)
            live.accounts.create_user(person, bindings, actor=SYSTEM)
            _, token = live.accounts.create_token(person, "", 0.0, actor=SYSTEM)
            with Client.connect(url=live.url, token=token, **live.trust) as client:
                (entry,) = client.events(namespace="mine")
                texts[person] = str(msgspec.to_builtins(entry))
    assert "mine/next" in texts["one"] and "urgent" not in texts["one"]
    assert "for a job of another namespace, mine/next" in texts["one"]
    assert "other/urgent-2" in texts["two"]
