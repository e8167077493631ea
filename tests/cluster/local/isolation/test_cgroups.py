"""Where control groups go and what is written to them, on trees of plain files in the shape of the
kernel's: what a machine's own layout does not allow to run (version 2 with the controllers, here)."""

from pathlib import Path

import pytest

from shoal.cluster.local import groups
from shoal.cluster.local.isolation import cgroups


class Machine:
    """Control groups as files."""

    def __init__(self, root):
        self.root = root
        self.lines = []
        self.own = []
        (root / "proc/self").mkdir(parents=True)

    def mount_1(self, controller, own="/", group="/"):
        place = f"/sys/fs/cgroup/{controller}"
        self.lines.append(f"30 20 0:30 {group} {place} rw - cgroup cgroup rw,{controller}")
        self.own.append(f"3:{controller}:{own}")
        return self._group(place, own)

    def mount_2(self, place="/sys/fs/cgroup", own="/", group="/"):
        self.lines.append(f"31 20 0:31 {group} {place} rw - cgroup2 cgroup2 rw")
        self.own.append(f"0::{own}")
        return self._group(place, own)

    def _group(self, place, own):
        folder = self.root / place.lstrip("/") / own.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def prepare(self):
        (self.root / "proc/self/mountinfo").write_text("\n".join(self.lines))
        (self.root / "proc/self/cgroup").write_text("".join(f"{line}\n" for line in self.own))
        return groups.prepare_parents("s", self.root)


def version_2(folder, *, controllers="cpu memory pids io", handed_down="", processes="", root=False):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.subtree_control").write_text(handed_down)
    (folder / "cgroup.procs").write_text(processes)
    if not root:
        (folder / "cgroup.type").write_text("domain")
    return folder


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_version_1_below_our_own_group(machine):
    memory = machine.mount_1("memory", own="/service")
    cpu = machine.mount_1("cpu,cpuacct", own="/")
    parents = machine.prepare()
    assert parents == {"memory": str(memory / "shoal-s"), "cpu": str(cpu / "shoal-s")}
    assert (memory / "shoal-s").is_dir()
    assert machine.prepare() == parents
    for folder in parents.values():
        (Path(folder) / "cgroup.procs").unlink()
    groups.release_parents(parents)
    assert not (memory / "shoal-s").exists()


def test_version_1_in_a_container_that_sees_its_own_group_as_the_root(machine):
    memory = machine.mount_1("memory", own="/docker/abc", group="/docker/abc")
    (machine.root / "sys/fs/cgroup/memory/docker").rename(machine.root / "aside")
    place = memory.parents[1]
    assert machine.prepare() == {"memory": str(place / "shoal-s")}


def test_a_hierarchy_that_we_may_not_write_is_done_without(machine):
    memory = machine.mount_1("memory")
    (memory / "shoal-s").write_text("in the way")
    cpu = machine.mount_1("cpu")
    assert machine.prepare() == {"cpu": str(cpu / "shoal-s")}


def test_version_2_at_the_machines_root(machine):
    root = version_2(machine.mount_2(), handed_down="cpu memory pids", processes="1\n2\n", root=True)
    version_2(root / "shoal-s", controllers="cpu memory pids", handed_down="cpu memory pids")
    assert machine.prepare() == dict.fromkeys(("cpu", "memory", "pids"), str(root / "shoal-s"))


def test_version_2_beside_us_in_a_slice(machine):
    own = machine.mount_2(own="/user.slice/app.slice/shoal.scope")
    version_2(own, processes="77\n")
    version_2(own.parent, handed_down="cpu memory pids")
    version_2(own.parent / "shoal-s", controllers="memory pids", handed_down="memory pids")
    expected = dict.fromkeys(("memory", "pids"), str(own.parent / "shoal-s"))
    assert machine.prepare() == expected
    assert (own / "cgroup.procs").read_text() == "77\n"


def test_version_2_in_a_container_moves_what_is_there_down(machine, monkeypatch):
    own = version_2(machine.mount_2(), processes="1\n")
    version_2(own / "shoal-control")
    version_2(own / "shoal-s", handed_down="cpu memory pids")
    moved = []

    def write(path, value):
        moved.append((Path(path).parent.name, Path(path).name, value))
        if path.endswith("shoal-control/cgroup.procs"):
            (own / "cgroup.procs").write_text("")

    monkeypatch.setattr(groups, "write", write)
    (own / "cgroup.subtree_control").write_text("cpu memory pids")
    assert set(machine.prepare()) == {"cpu", "memory", "pids"}
    assert moved == [("shoal-control", "cgroup.procs", "1")]


def test_version_2_that_is_not_ours_is_left_alone(machine):
    own = version_2(machine.mount_2(own="/user.slice/session.scope"), processes="5\n")
    version_2(own.parent, processes="6\n")
    (own / "shoal-control").write_text("in the way: no folder can be made")
    assert machine.prepare() == {}
    assert (own / "cgroup.procs").read_text() == "5\n"


def test_hybrid_adds_a_version_2_group_that_can_kill(machine):
    memory = machine.mount_1("memory")
    own = version_2(machine.mount_2(place="/sys/fs/cgroup/unified"), controllers="hugetlb")
    (own / "shoal-s").mkdir()
    (own / "shoal-s" / "cgroup.kill").touch()
    assert machine.prepare() == {"memory": str(memory / "shoal-s"), "kill": str(own / "shoal-s")}


def test_no_control_groups_at_all(machine):
    assert machine.prepare() == {}


LIMITS = {"cpu_millis": 1500, "cpu_limit_millis": 2500, "memory_bytes": 1 << 30, "pids": 100}


def group(tmp_path, *files, version):
    folder = tmp_path / "task"
    folder.mkdir()
    for name in files:
        (folder / name).touch()
    if version == 2:
        (tmp_path / "cgroup.controllers").touch()
    made = cgroups.Groups(dict.fromkeys(cgroups.CONTROLLERS, str(tmp_path)), "task")
    made.create(LIMITS)
    assert made.failed == {}
    assert (folder / cgroups.INNER).is_dir()
    files = [path for path in folder.iterdir() if path.is_file()]
    return {path.name: path.read_text() for path in files if path.read_text()}


def test_the_settings_of_version_1(tmp_path):
    files = (
        "cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us", "pids.max",
        "memory.limit_in_bytes", "memory.memsw.limit_in_bytes",
    )  # fmt: skip
    assert group(tmp_path, *files, version=1) == {
        "cpu.shares": "1536", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "250000",
        "memory.limit_in_bytes": str(1 << 30), "memory.memsw.limit_in_bytes": str(1 << 30),
        "pids.max": "100",
    }  # fmt: skip


def test_the_settings_of_version_2(tmp_path):
    files = ("cpu.weight", "cpu.max", "memory.max", "memory.swap.max", "memory.oom.group", "pids.max")
    assert group(tmp_path, *files, version=2) == {
        "cpu.weight": "59", "cpu.max": "250000 100000", "memory.max": str(1 << 30),
        "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": "100",
    }  # fmt: skip


def test_without_swap_accounting(tmp_path):
    files = ("cpu.weight", "cpu.max", "memory.max", "pids.max")
    assert "memory.swap.max" not in group(tmp_path, *files, version=2)


@pytest.mark.parametrize(
    ("files", "kills", "peak"),
    [
        ({"memory.events": "low 0\noom 3\noom_kill 2\n", "memory.peak": "123\n"}, 2, 123),
        ({"memory.oom_control": "under_oom 0\noom_kill 1\n", "memory.max_usage_in_bytes": "5\n"}, 1, 5),
        ({}, 0, 0),
    ],
)
def test_what_is_read_at_the_end(tmp_path, files, kills, peak):
    (tmp_path / "task").mkdir()
    for name, text in files.items():
        (tmp_path / "task" / name).write_text(text)
    groups = cgroups.Groups({"memory": str(tmp_path)}, "task")
    groups.find()
    assert (groups.out_of_memory_kills(), groups.peak_memory_bytes()) == (kills, peak)


def test_cpu_time(tmp_path):
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    groups = cgroups.Groups({"kill": str(tmp_path)}, "task")
    groups.find()
    assert groups.cpu_seconds() == 2.5
    assert cgroups.Groups({}, "task").cpu_seconds() == 0.0


def test_a_limit_that_cannot_be_set_is_told_and_its_group_goes(tmp_path):
    groups = cgroups.Groups({"memory": str(tmp_path)}, "task")
    groups.create({"memory_bytes": 5, "pids": 7})
    assert set(groups.failed) == {"memory", "pids"}
    assert "memory.limit_in_bytes" in groups.failed["memory"]
    assert groups.paths == []
    assert not (tmp_path / "task").exists()


def test_only_the_groups_that_are_needed_are_made(tmp_path):
    parents = {}
    for key in (*cgroups.CONTROLLERS, cgroups.KILL):
        (tmp_path / key).mkdir()
        parents[key] = str(tmp_path / key)
    groups = cgroups.Groups(parents, "task")
    groups.create({"cpu_millis": 0, "cpu_limit_millis": None, "memory_bytes": None, "pids": None})
    assert (groups.paths, groups.failed) == ([], {})
    groups.create_killing()
    assert groups.paths == [str(tmp_path / cgroups.KILL / "task")]
    del parents[cgroups.KILL]
    other = cgroups.Groups(parents, "other")
    other.create_killing()
    assert len(other.paths) == 1
    none = cgroups.Groups({}, "none")
    none.create_killing()
    assert none.paths == []
