"""Files and what is wrong with them."""

from __future__ import annotations

import pytest

from shoal.simulate.errors import BadInput
from shoal.simulate.scenario.whole import read_scenario
from tests.simulate.scenario.small import scenario

GOOD = """\
levels: [rack]
nodes:
  - {count: 2, gpus: 4, cpu: 8, labels: {rack: r0}}
shared: {licence: 1}
queues:
  - {name: a, nominal: {gpu: 4}}
  - {name: b, parent: a}
jobs:
  - {name: job, queue: b, gpus: 1, running: node0}
"""


def test_a_file_gives_rows_and_the_rest(tmp_path):
    read = scenario(tmp_path, GOOD + "now: 1m\nrules: {starving: 1h, beyondNominal: false, depth: 7}\n")
    assert read.name == "small" and read.now == 60
    assert [node.name for node in read.cluster.nodes] == ["node0", "node1"]
    assert read.cluster.nodes[0].amounts == {"cpu": 8000}
    assert [queue.parent for queue in read.cluster.queues] == ["", "a"]
    assert read.cluster.queues[0].nominal == {"gpu": 4.0}
    assert (
        read.rules.starving_seconds == 3600 and not read.rules.beyond_nominal and read.rules.depth == 7
    )
    assert read.until == 60 and read.stops is None


def test_without_queues_there_is_one_that_nothing_is_stated_of(tmp_path):
    (queue,) = scenario(tmp_path, "nodes: [{gpus: 1}]").cluster.queues
    assert queue.name == "default" and queue.nominal == {} and queue.limit == {}


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("parent: a", "parent: b", "queues are above themselves: b -> b"),
        ("{name: a, ", "{name: a, parent: b, ", "queues are above themselves: a -> b -> a"),
        ("parent: a", "parent: c", "there is no queue c to be the parent of b"),
        ("parent: a", "weight: -1", "weight: a number from 0 up is expected, not -1"),
        ("parent: a", "weight: .nan", "weight: a number is expected"),
        ("nominal: {gpu: 4}}", "weight: 0}", "weights of 0 and nothing of their own: a would"),
        ("gpu: 4}", "gpu: 9}", "queue a has nominal gpu 9, and the cluster has 8"),
        ("gpu: 4}", "gpu: 4}, limit: {gpu: 3}", "queue a has nominal gpu 4, above its limit 3"),
        ("gpu: 4}", "gpu: 4}, guaranteed: {gpu: 5}", "queue a is guaranteed gpu 5, above its nominal 4"),
        ("gpu: 4}", "gpus: 4}", "queues count gpu"),
        ("name: b", "name: a", "there are two queues a"),
        ("queue: b", "queue: bb", "job is in queue bb, which there is not; did you mean b?"),
        ("running: node0", "running: node2", "there is no node node2"),
        ("running: node0", "running: [node0, node0]", "role worker has at most 1 tasks"),
        ("gpus: 1, running", "gpus: 5, running", "node0 has not as many free GPUs as its tasks are on"),
        ("gpus: 1, running", "gpus: 1.5, running", "whole GPUs, or on a part of one, not on 1.5"),
        ("gpus: 1, running", "cpu: 9, running", "node0 has less cpu than its tasks hold"),
        ("gpus: 1, running", "gpus: 1, required: block, running", "the topology has no level block"),
        ("gpus: 1, running", "gpus: 1, shared: {other: 1}, running", "nobody has other"),
        ("gpus: 1, running", "gpus: 1, shared: {licence: 2}, running", "hold more of licence than"),
        ("gpus: 1, running", "gpus: 1, wallTime: 0, running", "job has no time"),
        ("gpus: 1, running", "gpus: 1, minimum: 3, maximum: 2, running", "at least 3 tasks and at most"),
        ("gpus: 1, running", "gpus: .nan, running", "gpus: a number is expected"),
        ("gpus: 1, running", "gpus: 1, count: 2, running", "several jobs can be nowhere yet"),
        ("gpus: 1, running", "gpus: 1, roles: {a: {}}, running", "gpus belongs to one of the roles"),
        ("count: 2", "count: 0", "a whole number from 1 up is expected, not 0"),
        ("count: 2", "count: 999999", "count is at most 100000"),
        ("count: 2", "name: x}\n  - {name: x", "there are two nodes x"),
        ("nodes:", "machines:", "machines means nothing here"),
        ("levels: [rack]", "levels: rack\nnow: yesterday", "'yesterday' is not a duration"),
        ("levels: [rack]", "rules: {starvin: 1}", "did you mean starving?"),
        ("levels: [rack]", "rules: {policy: fifo-skp}", "no policy fifo-skp; did you mean fifo-skip?"),
        ("gpus: 1, running", "gpus: 1, speeds: [1, -2], running", "a number from 0 up is expected"),
        ("gpus: 1, running", "gpus: 1, speeds: [.nan], running", "a number is expected"),
        ("gpus: 1, running", "gpus: 1, speeds: [0, 1], running", "job makes no progress with 1 tasks"),
        ("gpus: 1, running", "gpus: 1, work: 0, running", "work of 0 is not an amount of work"),
        ("levels: [rack]", "expect: {}", "nothing is expected"),
        ("levels: [rack]", "expect: {begin: [job]}", "begin means nothing here"),
        ("levels: [rack]", "events: [{gone: all}]", "at is missing"),
        ("levels: [rack]", "now: 1m\nevents: [{at: 1s}]", "at 1 s is before 60 s"),
        ("levels: [rack]", "events: [{at: 1s, lose: node7}]", "there is no node node7"),
        ("levels: [rack]", "events: [{at: 1, submit: {name: b, running: node0}}]", "can be nowhere yet"),
        ("gpus: 1, running", "gpus: 1, created: 1h, running", "job comes later, and can be nowhere yet"),
        ("levels: [rack]", "levels: [rack", "line "),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_one_sentence_with_its_line(tmp_path, old, new, sentence):
    assert old in GOOD
    with pytest.raises(BadInput) as caught:
        scenario(tmp_path, GOOD.replace(old, new, 1))
    assert sentence in caught.value.message
    assert "small.yaml, line " in caught.value.message
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.message


def test_a_job_larger_than_the_cluster_can_be(tmp_path):
    """The decision says so, as soon as it comes."""
    assert (
        scenario(tmp_path, "nodes: [{gpus: 1}]\njobs: [{name: a, gpus: 2}]").entries[0].job.name == "a"
    )


def test_promises_may_be_more_than_there_is_but_not_guarantees(tmp_path):
    both = (
        "queues: [{name: a, nominal: {gpu: 2}%s}, {name: b, nominal: {gpu: 2}%s}]\nnodes: [{gpus: 3}]\n"
    )
    assert len(scenario(tmp_path, both % ("", "")).cluster.queues) == 2
    kept = ", guaranteed: {gpu: 2}"
    with pytest.raises(BadInput, match="queues are guaranteed 4 gpu together, and the cluster has 3"):
        scenario(tmp_path, both % (kept, kept))


def test_what_children_have_together_counts_for_their_parent(tmp_path):
    text = """
        nodes: [{gpus: 8}]
        queues:
          - {name: top, limit: {gpu: 3}}
          - {name: a, parent: top, nominal: {gpu: 2}}
          - {name: b, parent: top, nominal: {gpu: 2}}
        """
    with pytest.raises(BadInput, match="queue top has nominal gpu 4, above its limit 3"):
        scenario(tmp_path, text)


def test_files_that_are_none(tmp_path):
    with pytest.raises(BadInput, match=r"absent\.yaml cannot be read: No such file"):
        read_scenario(tmp_path / "absent.yaml")
    (tmp_path / "two.yaml").write_text("nodes: []\n---\nnodes: []\n")
    with pytest.raises(BadInput, match="holds 2 documents; a scenario is one"):
        read_scenario(tmp_path / "two.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(BadInput, match=r"binary\.yaml"):
        read_scenario(tmp_path / "binary.yaml")
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(BadInput, match=r"empty\.yaml"):
        read_scenario(tmp_path / "empty.yaml")
    with pytest.raises(BadInput, match="nodes is missing"):
        scenario(tmp_path, "now: 1")
