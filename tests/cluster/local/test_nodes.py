import pytest

from shoal.cluster.local import nodes
from shoal.cluster.local.home import Home
from shoal.cluster.local.nodes import NodeDecl, declare, parse
from shoal.objects.errors import Invalid
from shoal.objects.quantities import Bytes, CpuMillis


def test_one_node_is_the_machine():
    (node,) = declare()
    assert node.name == "local"
    assert (node.cpu, node.memory) == (nodes.cpu_millis(), nodes.memory_bytes())
    assert node.gpus == nodes.gpu_ids()


def test_several_share_it_or_have_what_they_are_given(monkeypatch):
    monkeypatch.setattr(nodes, "gpu_ids", lambda: ("a", "b", "c"))
    shared = declare(2)
    assert [node.name for node in shared] == ["local-0", "local-1"]
    assert [node.gpus for node in shared] == [("a", "c"), ("b",)]
    assert sum(node.cpu for node in shared) <= nodes.cpu_millis()
    given = declare(4, cpu=CpuMillis(4000), memory=Bytes(1 << 30))
    assert [(node.cpu, node.memory) for node in given] == [(4000, 1 << 30)] * 4


def test_declarations_persist(tmp_path):
    home = Home(tmp_path).create()
    assert nodes.load(home) == ()
    declared = parse(
        [{"name": "big", "cpu": "8", "memory": "32Gi", "gpus": ["0"], "labels": {"a": "b"}}]
    )
    nodes.save(home, declared)
    assert nodes.load(home) == declared
    assert declared == (
        NodeDecl(
            name="big", cpu=CpuMillis(8000), memory=Bytes(32 << 30), gpus=("0",), labels={"a": "b"}
        ),
    )


def test_a_file_may_be_a_list_or_name_it():
    assert parse({"nodes": [{"name": "a"}]}) == parse([{"name": "a"}])
    assert parse([{"name": "a"}])[0].cpu == nodes.cpu_millis()


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (None, "nodes"),
        ([], "no nodes"),
        ({"node": []}, "no nodes"),
        (["a"], "declare nodes"),
        ([{"cpu": 1}], "name"),
        ([{"name": "a", "cpus": 1}], "cpus"),
        ([{"name": "a", "memory": "lots"}], "lots"),
        ([{"name": "A b"}], "A b"),
        ([{"name": "a"}, {"name": "a"}], "twice"),
        ([{"name": "a", "gpus": ["0"]}, {"name": "b", "gpus": ["0"]}], "two nodes"),
    ],
)
def test_what_cannot_be_declared_is_said(document, said):
    with pytest.raises(Invalid) as caught:
        parse(document)
    assert said in " ".join([caught.value.message, *map(str, caught.value.problems)])


def test_everything_wrong_is_said_at_once():
    with pytest.raises(Invalid) as caught:
        parse([{"name": "a", "x": 1, "y": 2}, {"name": "a", "cpu": "?"}])
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    ("files", "cpu", "memory"),
    [
        ({}, None, None),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "50000 100000"}, 500, None),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/memory.max": "max"}, None, None),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "1048576"}, None, 1048576),
        (
            {
                "proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/x",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "150000",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "2097152",
            },
            1500,
            2097152,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/x",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000",
            },
            None,
            None,
        ),
    ],
)
def test_limits_of_the_group_count_like_the_hardwares(tmp_path, files, cpu, memory):
    everything = tmp_path / "none"
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    (tmp_path / "sys/fs/cgroup/a/b").mkdir(parents=True, exist_ok=True)
    full = nodes.cpu_millis(everything)
    assert nodes.cpu_millis(tmp_path) == (full if cpu is None else min(full, cpu))
    whole = nodes.memory_bytes(everything)
    assert nodes.memory_bytes(tmp_path) == (whole if memory is None else memory)


def test_a_number_of_gpus_declares_devices_for_trying():
    one, two = parse([{"name": "a", "gpus": 2}, {"name": "b", "gpus": 1}])
    assert (one.gpus, two.gpus) == (("a-gpu0", "a-gpu1"), ("b-gpu0",))
    with pytest.raises(Invalid):
        parse([{"name": "a", "gpus": -1}])
