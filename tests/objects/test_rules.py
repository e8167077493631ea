# ruff: noqa: E501  (messages are quoted whole)
"""What must hold between the fields of an object."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.objects.admit import admit
from tests.objects.documents import job, of_kind, problems, role

ARRAY = {"array": {"indices": "0-9"}}


def two(first: dict[str, Any], second: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return job(roles=[{"command": ["a"], **first}, {"command": ["b"], **second}], **spec)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (two({}, {}), "spec.roles[1].name: two roles are called worker"),
        (two({"replicas": 60_000}, {"name": "b", "replicas": 60_000}),
         "spec.roles: a job has at most 100000 tasks; these roles have 120000"),
        (role(minReplicas=2), "spec.roles[0].minReplicas: 2 is more than replicas, which is 1"),
        (job(roles=[{}]), "spec.roles[0].command: a task needs a program, such as [python, train.py]"),
        (job(roles=[{"args": ["x"]}]),
         "spec.roles[0].command: args are given without the program, such as [python, train.py]"),
        (role(command=[""]), "spec.roles[0].command[0]: the program's name is empty"),
        (role(args=["a\0"]), "spec.roles[0].args[0]: no argument of a program can hold a NUL character"),
        (role(workingDirectory="data"), "spec.roles[0].workingDirectory: 'data' is not an absolute path"),
        (role(workingDirectory="/" + "d/" * 2048),
         "spec.roles[0].workingDirectory: a path has at most 4095 bytes, this one 4097"),
        (two({"workingDirectory": "/data"}, {"name": "b", "workingDirectory": "/data/../proc/sys"}, isolation="strict"),
         "spec.roles[1].workingDirectory: a strict job cannot work in /proc/sys: it sees nothing of the machine's /proc"),
        (job(roles=[{"command": ["x"], "workingDirectory": "/run/service"}], isolation="strict"),
         "spec.roles[0].workingDirectory: a strict job cannot work in /run/service: it sees nothing of the machine's /run"),
        (job(roles=[{"command": ["x"], "workingDirectory": "/dev/shm"}], isolation="strict"),
         "spec.roles[0].workingDirectory: a strict job cannot work in /dev/shm: it sees nothing of the machine's /dev"),
        (job(roles=[{"command": ["x"], "workingDirectory": "/tmp/"}], isolation="strict"),
         "spec.roles[0].workingDirectory: a strict job cannot work in /tmp: it sees nothing of the machine's /tmp"),
        (role(env={"SHOAL_JOB": "x"}),
         "spec.roles[0].env.SHOAL_JOB: names that begin with SHOAL_ are set by the platform: choose another"),
        (role(env={"A=B": "x"}),
         'spec.roles[0].env["A=B"]: the name of a variable is not empty and holds no = and no NUL'),
        (role(env={"": "x"}),
         'spec.roles[0].env[""]: the name of a variable is not empty and holds no = and no NUL'),
        (role(env={"A": "\0"}), "spec.roles[0].env.A: the value of a variable cannot hold a NUL character"),
        (role(resources={"cpu": 2, "cpuLimit": 1}),
         "spec.roles[0].resources.cpuLimit: 1 is less than cpu, which is 2"),
        (role(resources={"cpu": 0, "cpuLimit": 0}),
         "spec.roles[0].resources.cpuLimit: must be greater than 0"),
        (role(resources={"memory": 2}),
         "spec.roles[0].resources.memory: no process fits into 2 bytes; did you mean 2Gi?"),
        (role(resources={"memory": 512}),
         "spec.roles[0].resources.memory: no process fits into 512 bytes; did you mean 512Mi?"),
        (role(resources={"memory": 0}), "spec.roles[0].resources.memory: no process fits into 0 bytes"),
        (
            role(ports=[{"name": f"p{number}"} for number in range(65)]),
            "spec.roles[0].ports: a task has at most 64 ports; found 65",
        ),
        (role(ports=[{"name": "a"}, {"name": "a"}]), "spec.roles[0].ports[1].name: two ports are called a"),
        (role(ports=[{"name": "a", "port": 5}, {"name": "b", "port": 5}]),
         "spec.roles[0].ports[1].port: two ports of this role have the number 5"),
        (two({"ports": [{"name": "a", "port": 5}]}, {"name": "b", "ports": [{"name": "a", "port": 5}]},
             isolation="strict"),
         "spec.roles[1].ports[0].port: the roles of a strict job share a network, and worker has 5 already"),
        (role(nodeSelector={"a": "-"}),
         "spec.roles[0].nodeSelector.a: '-' is not a label value: at most 63 letters, digits and -_. with "
         "a letter or digit at both ends"),
        (role(tolerations=[{"value": "x"}]),
         "spec.roles[0].tolerations[0].value: a value is tolerated together with its key"),
        (role(restartRules=[{"exitCodes": [], "action": "Fail"}]),
         "spec.roles[0].restartRules[0].exitCodes: a rule names at least one exit code"),
        (job(restart={"rules": [{"exitCodes": [3], "action": "Fail"}, {"exitCodes": [4, 3], "action": "Ignore"}]}),
         "spec.restart.rules[1].exitCodes[1]: exit code 3 is decided by rule 0 already"),
        (job(restart={"rules": [{"exitCodes": [0], "action": "Fail"}]}),
         "spec.restart.rules[0].exitCodes[0]: exit code 0 is success, and rules are about failures"),
        (job(gang={"min": 2}), "spec.gang.min: 2 is more than the 1 tasks of all roles"),
        (two({"replicas": 4, "minReplicas": 3}, {"name": "ps", "replicas": 2}, gang={"min": 2}),
         "spec.gang.min: 2 is too few: the minimums of the roles add up to 3"),
        (role(replicas=4) | {"spec": {**role(replicas=4)["spec"], "gang": {"min": 3}, "runtime": "jax"}},
         "spec.gang.min: 3 is too few: the minimums of the roles add up to 4 (under jax a role without "
         "minReplicas has a fixed size)"),
        (job(**ARRAY, gang={"min": 1}),
         "spec.gang.min: the indices of an array start apart: gang is for other jobs"),
        (job(array={"indices": "x"}), "spec.array.indices: 'x' is not a list of indices such as 0-4,7"),
        (job(array={"indices": ""}), "spec.array.indices: an array has at least one index, such as 0-99"),
        (job(array={"indices": "0-100000"}),
         "spec.array.indices: an array has at most 100000 indices; found 100001"),
        (two({}, {"name": "b"}, **ARRAY), "spec.roles: an array has one role"),
        (job(roles=[{"command": ["a"], "replicas": 2}], **ARRAY),
         "spec.roles[0].replicas: an array runs its role once per index: leave replicas at 1"),
        (job(roles=[{"command": ["a"], "minReplicas": 1}], **ARRAY),
         "spec.roles[0].minReplicas: an array has no minReplicas: its indices are scheduled apart"),
        (job(**ARRAY, runtime="torchrun"),
         "spec.runtime: the indices of an array have no peers, so there is nothing for torchrun to join"),
        (job(**ARRAY, restart={"scope": "Gang"}),
         "spec.restart.scope: the indices of an array are restarted apart: leave scope out"),
        (job(success={"role": "workr"}), "spec.success.role: no role is called workr; did you mean worker?"),
        (job(limits={"wallTime": 0}), "spec.limits.wallTime: must be greater than 0"),
        (job(limits={"nodeHours": 0}), "spec.limits.nodeHours: a budget is a number of hours above 0; found 0"),
        (job(limits={"nodeHours": float("nan")}),
         "spec.limits.nodeHours: a budget is a number of hours above 0; found nan"),
        (role(resources={"gpuShare": 1}),
         "spec.roles[0].resources.gpuShare: a part of a device is a number from 0.001 to below 1; found 1; did "
         "you mean gpu: 1?"),
        (role(resources={"gpuShare": 0}),
         "spec.roles[0].resources.gpuShare: a part of a device is a number from 0.001 to below 1; found 0"),
        (role(resources={"gpuShare": 0.5, "gpu": 1}),
         "spec.roles[0].resources.gpuShare: a task has whole devices or a part of one: leave gpu or gpuShare out"),
        (role(topology={"required": "a b"}),
         "spec.roles[0].topology.required: 'a b' is not a label key: [prefix/]name, the name at most 63 letters, "
         "digits and -_. with a letter or digit at both ends"),
        (role(topology={"spread": "rack"}),
         "spec.roles[0].topology.spread: unknown field; known here: preferred, required"),
        (job(topology={"preferred": "-"}),
         "spec.topology.preferred: '-' is not a label key: [prefix/]name, the name at most 63 letters, digits "
         "and -_. with a letter or digit at both ends"),
        (job(topology={"required": "rack", "spread": "rack"}),
         "spec.topology.spread: all tasks are within one rack: there is nothing to spread over"),
        (job(speed={"curve": [1, -1]}),
         "spec.speed.curve[1]: progress per second is a number of at least 0; found -1"),
        (job(speed={"curve": [float("nan")]}),
         "spec.speed.curve[0]: progress per second is a number of at least 0; found nan"),
        (job(speed={"curve": [1, float("inf")]}),
         "spec.speed.curve[1]: progress per second is a number of at least 0; found inf"),
        (job(speed={"curve": [1, ".nan"]}), "spec.speed.curve[1]: wants a number; found the text '.nan'"),
        (job(speed={"curve": [0, 0]}), "spec.speed.curve: a job that gets on with no number of tasks never ends"),
        (job(speed={"curve": [1] * 4097}), "spec.speed.curve: a curve has at most 4096 points; found 4097"),
        (job(speed={"work": 0}), "spec.speed.work: work is a number above 0; found 0"),
        (job(speed={"work": float("nan")}), "spec.speed.work: work is a number above 0; found nan"),
        (job(priority=2**31), "spec.priority: a priority lies between -2147483648 and 2147483647"),
        (job(priority="high"),
         "spec.priority: 'high' is no priority; write a number or one of production, normal, experiment"),
        (two({"name": "launcher"}, {"name": "slave"}, runtime="mpi"),
         "spec.roles: under mpi a job has the roles launcher and worker, or a single role"),
        (two({"name": "launcher", "replicas": 2}, {}, runtime="mpi"),
         "spec.roles[0].replicas: under mpi there is one launcher"),
        (two({"name": "master", "replicas": 2}, {}, runtime="torchrun"),
         "spec.roles[0].replicas: under torchrun there is one master"),
        (two({"name": "chief"}, {"name": "server"}, runtime="tensorflow"),
         "spec.roles[1].name: tensorflow knows the roles chief, master, worker, ps, evaluator; found server"),
        (two({"name": "chief"}, {"name": "master"}, runtime="tensorflow"),
         "spec.roles[1].name: tensorflow has a chief or a master, not both"),
    ],
)  # fmt: skip
def test_rules_of_a_job(document: Any, problem: str) -> None:
    assert problems(document) == [problem]


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (role(image="python:3"),
         "spec.roles[0].image: image needs a cluster that runs containers; this one runs processes"),
        (job(roles=[{"template": {"spec": {}}}]),
         "spec.roles[0].template: template is a pod's and needs a Kubernetes cluster; this one runs processes"),
    ],
)  # fmt: skip
def test_what_is_not_available_yet_is_refused_unless_left_at_its_default(
    document: Any, problem: str
) -> None:
    assert problems(document) == [problem]


def test_those_fields_at_their_defaults_are_accepted() -> None:
    admit(role(image="", template={}))


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (of_kind("Queue", namespaces=["a", "a"]), "spec.namespaces[1]: a is listed already"),
        (of_kind("Queue", highestPriority={"A": 1}),
         "spec.highestPriority.A: 'A' is neither a namespace nor *"),
        (of_kind("Queue", highestPriority={"*": "top"}),
         'spec.highestPriority["*"]: \'top\' is no priority; write a number or one of production, normal, '
         "experiment"),
        (of_kind("Queue", namespaces=["a"], highestPriority={"b": 1}),
         "spec.highestPriority.b: namespace b may not use this queue: it is not in spec.namespaces"),
        (of_kind("Queue", parent="a"), "spec.parent: a cannot be above itself"),
        (of_kind("Queue", parent="-"),
         "spec.parent: wants a name of lower-case letters, digits and dashes, at most 63, with no dash at either "
         "end; found the text '-'"),
        (of_kind("Queue", weight=0), "spec.weight: a weight is a number above 0; found 0"),
        (of_kind("Queue", weight=-1), "spec.weight: a weight is a number above 0; found -1"),
        (of_kind("Queue", weight=float("nan")), "spec.weight: a weight is a number above 0; found nan"),
        (of_kind("Queue", weight=float("inf")), "spec.weight: a weight is a number above 0; found inf"),
        (of_kind("Queue", weight=".nan"), "spec.weight: wants a number; found the text '.nan'"),
        (of_kind("Queue", priority=2**31),
         "spec.priority: a priority lies between -2147483648 and 2147483647"),
        (of_kind("Queue", guaranteed={"gpu": 3}, nominal={"gpu": 2}),
         "spec.guaranteed.gpu: 3 is more than nominal, which is 2"),
        (of_kind("Queue", guaranteed={"memory": "2Gi"}),
         "spec.guaranteed.memory: 2Gi is more than nominal, which names no memory"),
        (of_kind("Queue", lending={"cpu": "1500m"}, nominal={"cpu": 1}),
         "spec.lending.cpu: 1500m is more than nominal, which is 1"),
        (of_kind("Queue", nominal={"gpu": 2.5}, quota={"gpu": 2}),
         "spec.nominal.gpu: 2.5 is more than quota, which is 2"),
        (of_kind("Queue", nominal={"gpu": -1}), "spec.nominal.gpu: wants a number of at least 0; found the number -1"),
        (of_kind("Queue", nominal={"gpu": float("nan")}),
         "spec.nominal.gpu: wants a number of at least 0; found NaN, which is no number"),
        (of_kind("Queue", nominal={"gpu": float("inf")}), "spec.nominal.gpu: an amount is a finite number"),
        (of_kind("Queue", borrowing={"cpu": -1}), "spec.borrowing.cpu: -1 is not a number of cores such as 500m, 0.5 or 2"),
        (of_kind("Queue", budgets=[{"name": "a", "resource": "gpu", "hours": 0}]),
         "spec.budgets[0].hours: a budget is a number of hours above 0; found 0"),
        (of_kind("Queue", budgets=[{"name": "a", "resource": "gpu", "hours": float("nan")}]),
         "spec.budgets[0].hours: a budget is a number of hours above 0; found nan"),
        (of_kind("Queue", budgets=[{"name": "a", "resource": "gpus", "hours": 1}]),
         "spec.budgets[0].resource: wants one of cpu, gpu, memory, node; found the text 'gpus'; did you mean gpu?"),
        (of_kind("Queue", budgets=2 * [{"name": "a", "resource": "gpu", "hours": 1}]),
         "spec.budgets[1].name: two budgets are called a"),
        (of_kind("Queue", minRuntime="soon"),
         "spec.minRuntime: 'soon' is not a duration such as 90s, 10m or 2h30m"),
        (of_kind("Node", labels={"a b": "1"}),
         'spec.labels["a b"]: \'a b\' is not a label key: [prefix/]name, the name at most 63 letters, digits '
         "and -_. with a letter or digit at both ends"),
        (of_kind("Node", taints=[{"key": "a"}, {"key": "a", "value": "b"}]),
         "spec.taints[1]: a taint a:NoSchedule is listed already"),
        ({**job(), "metadata": {"name": "a", "annotations": {"x": "y" * 300_000}}},
         "metadata.annotations: annotations hold at most 262144 characters; found 300001"),
    ],
)  # fmt: skip
def test_rules_of_the_other_kinds(document: Any, problem: str) -> None:
    assert problems(document) == [problem]


@pytest.mark.parametrize(
    "document",
    [
        job(**ARRAY),
        two({"replicas": 4, "minReplicas": 3}, {"name": "ps", "replicas": 2}, gang={"min": 3}),
        two({"name": "launcher"}, {"replicas": 9}, runtime="mpi"),
        job(runtime="mpi"),
        two({"name": "chief"}, {"name": "ps", "replicas": 3}, runtime="tensorflow"),
        role(resources={"cpu": 0.5, "cpuLimit": "500m"}),
        role(env={"_": "", "a.b": "x"}),
        role(resources={"gpuShare": 0.5}, topology={"required": "rack", "preferred": "node"}),
        job(
            user="Ann Lee",
            preemptible=False,
            topology={"required": "example.com/block", "preferred": "rack", "spread": "node"},
            speed={"curve": [1, 1.8, 2.4], "work": 1e6, "application": "bert", "restart": "20s"},
        ),
        of_kind(
            "Queue",
            parent="all",
            quota={"cpu": 8, "gpu": 4},
            nominal={"cpu": 4, "memory": "1Ti", "gpu": 2.5},
            guaranteed={"cpu": 1, "gpu": 0.5},
            borrowing={"gpu": 8},
            lending={"cpu": 3},
            weight=0.5,
            priority=-1,
            fenced=True,
            userLimit={"gpu": 2, "jobs": 3},
            minRuntime="10m",
            budgets=[{"name": "grant", "resource": "gpu", "hours": 1000}],
        ),
        of_kind("Queue", guaranteed={"gpu": 0}),
    ],
)
def test_what_is_right_is_admitted(document: Any) -> None:
    admit(document)
