"""Nodes, jobs and tasks as files have them."""

from __future__ import annotations

import pytest

from shoal.schedule.cycle.rows import Role, Task
from shoal.simulate.errors import BadInput
from tests.simulate.scenario.small import scenario


def jobs(folder, text, nodes="[{count: 2, gpus: 4, cpu: 8, memory: 16Gi}]"):
    read = scenario(folder, f"nodes: {nodes}\njobs:\n{text}")
    return [entry.job for entry in read.entries]


def test_nodes_are_numbered_through_unless_they_have_a_name(tmp_path):
    text = (
        "nodes: [{count: 2}, {name: large}, {gpus: 1}, {name: rack, count: 2}, {name: rack, count: 1}]"
    )
    names = [node.name for node in scenario(tmp_path, text).cluster.nodes]
    assert names == ["node0", "node1", "large", "node2", "rack0", "rack1", "rack2"]


def test_taints_and_those_who_tolerate_them(tmp_path):
    nodes = "[{gpus: 1, taints: [{key: large, effect: NoExecute}], ready: false, schedulable: false}]"
    text = "  - {name: a, tolerations: [{key: large}], nodeSelector: {model: T4}}"
    read = scenario(tmp_path, f"nodes: {nodes}\njobs:\n{text}")
    (node,) = read.cluster.nodes
    assert node.taints[0].key == "large" and not node.ready and not node.schedulable
    (role,) = read.entries[0].job.roles
    assert role.tolerations[0].key == "large" and role.selector == {"model": "T4"}
    with pytest.raises(BadInput, match="taints are key, value and effect"):
        scenario(tmp_path, "nodes: [{taints: [{effect: Sometimes}]}]")


@pytest.mark.parametrize(
    ("said", "least", "most"),
    [
        ("{name: a}", 1, 1),
        ("{name: a, tasks: 3}", 3, 3),
        ("{name: a, maximum: 4}", 1, 4),
        ("{name: a, minimum: 2}", 2, 2),
        ("{name: a, minimum: 2, maximum: 4}", 2, 4),
        ("{name: a, minimum: 0, maximum: 4}", 0, 4),
    ],
)
def test_how_many_tasks(tmp_path, said, least, most):
    (job,) = jobs(tmp_path, f"  - {said}")
    assert job.roles == (Role(minimum=least, maximum=most),)


def test_several_roles_have_sizes_of_their_own(tmp_path):
    text = """
  - name: a
    minimum: 3
    required: node
    roles: {ps: {cpu: 500m}, worker: {minimum: 1, maximum: 4, gpus: 0.25, memory: 1Gi}}
    running: {worker: [node0, node1], ps: node0}
"""
    (job,) = jobs(tmp_path, text)
    assert job.roles == (
        Role(name="ps", amounts={"cpu": 500}),
        Role(name="worker", minimum=1, maximum=4, share=250, amounts={"memory": 1 << 30}),
    )
    assert job.minimum == 3 and job.required == "node"
    assert job.tasks == (
        Task(role="worker", index=0, node="node0", gpus=(0,)),
        Task(role="worker", index=1, node="node1", gpus=(0,)),
        Task(role="ps", index=0, node="node0"),
    )


def test_gpus_are_given_out_in_order_unless_they_are_said(tmp_path):
    text = """
  - {name: half, gpus: 0.5, running: node0}
  - {name: also, gpus: 0.5, running: node0}
  - {name: two, gpus: 2, running: [{node: node0, gpus: [3, 1]}]}
  - {name: one, tasks: 2, gpus: 1, running: node0, stopping: {worker: [node1]}}
"""
    tasks = [task for job in jobs(tmp_path, text) for task in job.tasks]
    assert [task.gpus for task in tasks] == [(0,), (0,), (3, 1), (2,), (0,)]
    assert [task.stopping for task in tasks] == [False, False, False, False, True]
    assert [task.index for task in tasks] == [0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("running", "sentence"),
    [
        ("[{node: node0, gpus: [4]}]", "node0 has no GPU 4; its 4 are counted from 0"),
        ("[{node: node0, gpus: [0, 1]}]", "a task of role worker is on 1 GPUs, not on 2"),
        ("[{node: node0, gpus: [0]}, {node: node0, gpus: [0]}]", "GPU 0 of node0 is taken already"),
        ("[{node: node0, index: 1}, node0]", "two tasks of a have one index"),
        ("{helper: node0}", "helper means nothing here"),
        ("[{gpus: [0]}]", "node is missing"),
        ("[7]", "a word is expected, not 7"),
    ],
)
def test_where_nobody_can_be(tmp_path, running, sentence):
    with pytest.raises(BadInput) as caught:
        jobs(tmp_path, f"  - {{name: a, tasks: 4, gpus: 1, running: {running}}}")
    assert sentence in caught.value.message


def test_of_which_role_has_to_be_said(tmp_path):
    with pytest.raises(BadInput, match="of which role"):
        jobs(tmp_path, "  - {name: a, roles: {a: {}, b: {}}, running: [node0]}")


def test_many_equal_jobs_are_numbered_so_that_names_are_in_order(tmp_path):
    found = jobs(tmp_path, "  - {name: job, count: 12, every: 10s, created: 1m, wallTime: 1h}")
    assert [job.name for job in found] == sorted(job.name for job in found)
    assert found[0].name == "job00" and found[11].name == "job11"
    assert [job.created for job in found[:3]] == [60, 70, 80]
    assert {job.wall_seconds for job in found} == {3600}


def test_what_is_kept_may_be_where_somebody_is_stopping(tmp_path):
    text = """
  - {name: leaving, tasks: 4, gpus: 1, stopping: [node0, node0, node0, node0]}
  - {name: waits, gpus: 4, reserved: node0, promised: 5m}
"""
    waits = jobs(tmp_path, text)[1]
    assert waits.reserved == (Task(node="node0", gpus=(0, 1, 2, 3)),)
    assert (waits.promised, waits.place) == (300, ())


def test_queues_with_all_that_they_may_have(tmp_path):
    text = """
    nodes: [{gpus: 8, cpu: 16}]
    queues:
      - {name: top, jobs: 5, fenced: true}
      - name: q
        parent: top
        nominal: {gpu: 2, cpu: 500m}
        guaranteed: {gpu: 1}
        limit: {gpu: 4}
        borrowing: {gpu: 1.5}
        lending: {gpu: 0}
        weight: 0.5
        priority: -3
        namespaces: [default, other]
        userLimit: {gpu: 2}
        userJobs: 3
        minimumRun: 10m
        budgets: [{name: spring, hours: 100, spent: 12.5}, {name: cores, resource: cpu, hours: 1}]
    """
    top, queue = scenario(tmp_path, text).cluster.queues
    assert top.jobs == 5 and top.fenced
    assert queue.nominal == {"gpu": 2, "cpu": 500} and queue.guaranteed == {"gpu": 1}
    assert (queue.limit, queue.borrowing, queue.lending) == ({"gpu": 4}, {"gpu": 1.5}, {"gpu": 0})
    assert (queue.weight, queue.priority, queue.namespaces) == (0.5, -3, ("default", "other"))
    assert (queue.user_limit, queue.user_jobs, queue.minimum_seconds) == ({"gpu": 2}, 3, 600)
    assert [(b.name, b.resource, b.hours, b.spent) for b in queue.budgets] == [
        ("spring", "gpu", 100, 12.5),
        ("cores", "cpu", 1, 0),
    ]
