# ruff: noqa: E501  (messages are quoted whole)
"""From a document to an object, or every reason why not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from shoal.objects.admit import LARGEST_OBJECT, admit, admit_job
from shoal.objects.errors import Forbidden, Invalid, by_code
from shoal.objects.job import Job, priority_number
from shoal.objects.kinds import JOB, KINDS, QUEUE
from shoal.objects.meta import Metadata
from shoal.objects.queue import Queue, QueueSpec
from tests.objects.documents import job, of_kind, problems, role


def test_a_small_job_gets_its_defaults_and_loses_its_status() -> None:
    made = admit({**job(), "status": {"phase": "Running", "surprise": 1}})
    assert isinstance(made, Job)
    assert made.metadata.namespace == "default"
    assert made.status.phase == "Pending"
    assert made.spec.roles[0].name == "worker"


def test_everything_wrong_is_reported_at_once_and_nothing_that_only_follows() -> None:
    document = {
        "apiVersion": "shoal.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "My_Job", "label": {}},
        "spec": {
            "roles": [
                {
                    "replicas": "4",
                    "minReplicas": 9,
                    "comand": ["x"],
                    "resources": {"cpuu": 1, "memory": "512m", "gpu": -1},
                    "env": {"A": 1, "SHOAL_X": "1"},
                },
                "worker",
                {"command": ["a"], "name": "b", "replicas": 2, "minReplicas": 3},
            ],
            "queu": "x",
            "gang": {"min": 500},
            "suspend": "yes",
            "priority": "prodction",
            "limits": {"wallTime": "2 h"},
            "success": {"role": "c"},
        },
    }
    assert problems(document) == [
        "metadata.name: wants a name of lower-case letters, digits and dashes, at most 63, with no dash "
        "at either end; found the text 'My_Job'",
        "metadata.label: unknown field; did you mean labels?",
        "spec.roles[0].replicas: wants a whole number from 1 to 100000; found the text '4'; "
        "write 4, without quotes",
        "spec.roles[0].comand: unknown field; did you mean command?",
        "spec.roles[0].resources.cpuu: unknown field; did you mean cpu?",
        "spec.roles[0].resources.memory: '512m' is not a size in bytes such as 512Mi, 2Gi or 2G; "
        "did you mean 512Mi?",
        "spec.roles[0].resources.gpu: wants a whole number from 0 to 100000; found the number -1",
        "spec.roles[0].env.A: wants text; found the number 1; put it in quotes",
        "spec.roles[1]: wants fields such as name, replicas, minReplicas, command; found the text 'worker'",
        "spec.queu: unknown field; did you mean queue?",
        "spec.suspend: wants true or false; found the text 'yes'; write true, without quotes",
        "spec.limits.wallTime: '2 h' is not a duration such as 90s, 10m or 2h30m; did you mean 2h?",
        "spec.roles[0].env.SHOAL_X: names that begin with SHOAL_ are set by the platform: choose another",
        "spec.roles[2].minReplicas: 3 is more than replicas, which is 2",
        "spec.priority: 'prodction' is no priority; did you mean production?",
    ]


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (5, "an object has the fields kind, metadata and spec; found the number 5"),
        ({**job(), "kind": "Jop"}, "kind: the text 'Jop' is no kind; did you mean Job?"),
        ({**job(), "kind": 1}, "kind: the number 1 is no kind; known are Job, Queue, Node, Experiment, Trial"),
        ({**job(), "apiVersion": "batch/v1"}, "apiVersion: wants shoal.dev/v1alpha1; found the text 'batch/v1'"),
        ({**job(), "metadata": None}, "metadata: is required: fields such as name, namespace, labels, annotations"),
        ({**job(), "spec": {}}, "spec.roles: is required: a list"),
        ({**job(), "extra": 1}, "extra: unknown field; known here: apiVersion, kind, metadata, spec, status"),
        (job(roles=[]), "spec.roles: a job has at least one role"),
        (job(roles={}), "spec.roles: wants a list; found a map"),
        (role(command="true"), "spec.roles[0].command: wants a list of texts; found the text 'true'"),
        (role(command=[1]), "spec.roles[0].command[0]: wants text; found the number 1; put it in quotes"),
        (role(env=["A=1"]), "spec.roles[0].env: wants a map of names to texts; found a list"),
        (role(replicas=1.5), "spec.roles[0].replicas: wants a whole number from 1 to 100000; found the number 1.5"),
        (role(replicas=True), "spec.roles[0].replicas: wants a whole number from 1 to 100000; found true"),
        (role(name="a\n"), "spec.roles[0].name: wants a name of lower-case letters, digits and dashes, at most "
         "63, with no dash at either end; found the text 'a\\n'"),
        (job(priority=[1]), "spec.priority: wants a whole number or text; found a list"),
        (job(runtime="Torchrun"), "spec.runtime: wants one of elastic, jax, mpi, paddle, plain, tensorflow, "
         "torchrun, xgboost; found the text 'Torchrun'; did you mean torchrun?"),
        (of_kind("Node", taints=[{"key": ""}]), "spec.taints[0].key: wants text that is not empty; found the text ''"),
        (of_kind("Queue", weight="1"), "spec.weight: wants a number; found the text '1'"),
        (of_kind("Queue", quota={"gpu": -1}), "spec.quota.gpu: wants a whole number of at least 0; found the number -1"),
    ],
)  # fmt: skip
def test_structure(document: Any, problem: str) -> None:
    assert problems(document) == [problem]


def test_files_must_say_what_they_are_but_a_url_says_the_kind() -> None:
    bare = {"metadata": {"name": "a"}, "spec": job()["spec"]}
    assert problems(bare) == [
        "apiVersion: is required: shoal.dev/v1alpha1",
        "kind: is required: Job, Queue, Node, Experiment, Trial",
    ]
    assert admit(bare, JOB).kind == "Job"
    assert problems(job(), kind=QUEUE) == ["kind: wants Queue; found Job"]
    assert problems({**job(gangs=1), "apiVersion": "shoal.dev/v1"}) == [
        "apiVersion: wants shoal.dev/v1alpha1; found the text 'shoal.dev/v1'; did you mean shoal.dev/v1alpha1?",
        "spec.gangs: unknown field; did you mean gang?",
    ]


def test_null_is_absence() -> None:
    made = admit(job(limits=None, array=None, queue=None, roles=[{"command": ["x"], "ports": None}]))
    assert made == admit(job(roles=[{"command": ["x"]}]))


def test_namespaces() -> None:
    assert admit(job(), namespace="b").metadata.namespace == "b"
    there = {**job(), "metadata": {"name": "a", "namespace": "c"}}
    assert admit(there).metadata.namespace == "c"
    assert problems(there, namespace="b") == [
        "metadata.namespace: the object is of namespace c, and the command of namespace b"
    ]
    queue = admit({**of_kind("Queue"), "metadata": {"name": "q", "namespace": "b"}}, namespace="x")
    assert queue.metadata.namespace == ""
    assert queue.key == ("", "q")
    assert Queue(metadata=Metadata(name="q")).key == ("", "q")


@pytest.mark.slow
def test_sizes_are_bounded_and_reports_are_short() -> None:
    large = role(env={f"V{i}": "x" * 1000 for i in range(LARGEST_OBJECT // 1000)})
    assert problems(large)[0].startswith(f"an object has at most {LARGEST_OBJECT} bytes; found ")
    many = job(**{f"key{i}": 1 for i in range(50_000)})
    started = time.process_time()
    found = problems(many)
    assert time.process_time() - started < 2
    assert len(found) == 101
    assert found[-1] == "901 more problems are not listed"  # no more are looked for
    assert all(len(text) < 1000 for text in problems({**job(), "x" * 10**6: 1, "kind": "y" * 10**6}))
    assert len(problems(role(resources={"cpu": "9" * 10**6}))[0]) < 200


def test_what_is_opaque_is_bounded_in_depth() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    document = role()
    document["spec"]["roles"][0]["template"] = {"a": deep}
    assert problems(document) == ["spec.roles[0].template.a: nested deeper than 100 levels"]


def test_the_error_travels() -> None:
    with pytest.raises(Invalid) as raised:
        admit(job(queu="x"))
    again = by_code(raised.value.document())
    assert isinstance(again, Invalid)
    assert [str(p) for p in again.problems] == ["spec.queu: unknown field; did you mean queue?"]
    assert again.exit_code == 2


def test_every_kind_can_be_admitted_empty_or_nearly() -> None:
    least = {
        "Job": job()["spec"],
        "Trial": {"experiment": "x", "number": 0},
        "Experiment": {
            "objectives": [{"metric": "loss", "direction": "minimize"}],
            "parameters": [{"name": "lr", "type": "float", "min": 0, "max": 1}],
            "maxTrials": 1,
            "template": {"spec": {"roles": [{"command": ["train", "${lr}"]}]}},
        },
    }
    for kind in KINDS.values():
        spec = least.get(kind.name, {})
        assert type(admit(of_kind(kind.name, **spec))) is kind.struct


def test_a_job_is_held_against_its_queue() -> None:
    made = admit(job(priority="normal", queue="research"))
    assert isinstance(made, Job)
    with pytest.raises(Invalid, match="there is no queue research"):
        admit_job(made, None)
    with pytest.raises(Invalid, match="this queue is being deleted: research"):
        admit_job(made, Queue(metadata=Metadata(name="research", deleted=1.0)))

    def queue(**spec: Any) -> Queue:
        return Queue(metadata=Metadata(name="research"), spec=QueueSpec(**spec))

    assert admit_job(made, queue()) is made
    assert admit_job(made, queue(namespaces=("default",), highest_priority={"*": 0})) is made
    assert admit_job(made, queue(highest_priority={"*": -5, "default": "production"})) is made
    with pytest.raises(Forbidden, match="queue research is not for namespace default"):
        admit_job(made, queue(namespaces=("b",)))
    with pytest.raises(
        Forbidden, match="at most priority experiment in queue research; this one asks for normal"
    ):
        admit_job(made, queue(highest_priority={"default": "experiment"}))
    with pytest.raises(Forbidden, match="at most priority -1"):
        admit_job(made, queue(highest_priority={"*": -1}))


def test_priorities_have_numbers() -> None:
    assert [priority_number(p) for p in (5, "production", "normal", "experiment")] == [5, 1000, 0, -1000]
    with pytest.raises(Invalid, match="'high' is no priority"):
        priority_number("high")
