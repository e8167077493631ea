"""Every state file of a node, damaged in turn in every way, with tasks that run and have ended: the
node comes back, names the damage, and no incarnation runs twice."""

import os
import signal
import sqlite3
from contextlib import closing

import pytest

from shoal import statefiles
from shoal.cluster.base import Refused
from shoal.cluster.local import groups, nodes, settings, taskfiles
from shoal.cluster.local.isolation import probe
from shoal.testing.cluster import start_group
from shoal.testing.local import wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]


def garbage_in_the_middle(data):
    middle = len(data) // 2
    return data[: middle // 2] + b"\x00\xff{garbage" * 3 + data[middle // 2 + 27 :]


DAMAGE = {
    "garbage": garbage_in_the_middle,
    "empty": lambda data: b"",
    "text": lambda data: b"This is not what belongs here.\n",
    "truncated": lambda data: data[: len(data) // 2],
}

RUN = "echo run >> $SHOAL_OUTPUT/runs; until [ -e $SHOAL_OUTPUT/go ]; do sleep 0.05; done; exit 7"


class Scene:
    """A node with a task that runs, one that has ended and one that was acknowledged; no agent."""

    def __init__(self, local, make_spec, start):
        self.local = local
        self.runs, self.ended, self.acknowledged = (
            make_spec(("sh", "-c", RUN), job=job) for job in ("runs", "ended", "acknowledged")
        )
        self.all = (self.runs, self.ended, self.acknowledged)
        start(self.all)
        wait_until(lambda: {local.phase(spec.key) for spec in self.all} == {"Running"})
        for spec in (self.ended, self.acknowledged):
            self.go(spec)
            wait_until(lambda spec=spec: local.phase(spec.key) == "Ended")
        local.cluster.acknowledge(self.acknowledged.key)
        wait_until(lambda: local.phase(self.acknowledged.key) == "")
        local.kill("one")

    def output(self, spec):
        return self.local.home.output / spec.namespace / spec.job_uid

    def go(self, spec):
        (self.output(spec) / "go").touch()

    def count(self, spec):
        return (self.output(spec) / "runs").read_text().count("run")

    def task_file(self, spec, name):
        return self.local.home.node("one").tasks / f"{spec.namespace}.{spec.name}" / name


@pytest.fixture
def scene(make_home, make_spec):
    local = make_home()
    return Scene(local, make_spec, lambda group: start_group(local.cluster, group))


FILES = {
    "ledger": lambda scene: scene.local.home.node("one").ledger,
    "cgroups.json": lambda scene: scene.local.home.node("one").path / "cgroups.json",
    "isolations.json": lambda scene: scene.local.home.run / "isolations.json",
    "nodes.json": lambda scene: scene.local.home.nodes_json,
    **{
        f"{which}-{name}": lambda scene, which=which, name=name: scene.task_file(
            getattr(scene, which), name
        )
        for which, names in {
            "runs": (taskfiles.LAUNCH, taskfiles.STARTED, taskfiles.RECORD, "status", "lock"),
            "ended": (taskfiles.EXIT, taskfiles.LAUNCH, taskfiles.STARTED, "status"),
        }.items()
        for name in names
    },
}


@pytest.mark.parametrize(
    "turn", [0, 1, *(pytest.param(turn, marks=pytest.mark.soak) for turn in (2, 3))]
)
def test_the_node_comes_back_and_nothing_runs_twice(scene, turn):
    """Over the four turns each file is damaged in each way."""
    local = scene.local
    for number, (file, path_of) in enumerate(FILES.items()):
        path = path_of(scene)
        if not path.exists():
            assert file == "cgroups.json", "only that depends on the machine"
            continue
        damage = list(DAMAGE.values())[(number + turn) % len(DAMAGE)]
        path.write_bytes(damage(path.read_bytes()))
        local.up()
        wait_until(lambda: local.cluster.nodes()[0].ready)
        wait_until(lambda: local.phase(scene.runs.key) == "Running")
        assert local.task(scene.ended.key).outcome.exit_code == 7, file
        with pytest.raises(Refused):
            start_group(local.cluster, (scene.acknowledged,))
        local.kill("one")
    local.up()
    scene.go(scene.runs)
    wait_until(lambda: local.phase(scene.runs.key) == "Ended")
    assert local.task(scene.runs.key).outcome.exit_code == 7
    start_group(local.cluster, (scene.runs, scene.ended))
    assert [scene.count(spec) for spec in scene.all] == [1, 1, 1]
    for spec in (scene.runs, scene.ended):
        local.cluster.acknowledge(spec.key)
    wait_until(lambda: not local.cluster.list().tasks)


@pytest.mark.parametrize("lost", ["all", "main"])
def test_a_lost_ledger_is_rebuilt_from_the_tasks_folders(scene, lost):
    local, path = scene.local, scene.local.home.node("one").ledger
    for suffix in ("", "-wal", "-shm") if lost == "all" else ("",):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    local.up()
    wait_until(lambda: local.phase(scene.runs.key) == "Running")
    assert local.task(scene.runs.key).endpoint.ports
    wait_until(lambda: local.phase(scene.ended.key) == "Ended")
    assert local.task(scene.ended.key).outcome.exit_code == 7
    assert "StateDamaged" in local.cluster.nodes()[0].problems
    with pytest.raises(Refused):
        start_group(local.cluster, (scene.acknowledged,))
    assert [scene.count(spec) for spec in scene.all] == [1, 1, 1]


def test_an_older_ledger_does_not_run_what_has_run(make_home, make_spec):
    """The copy knows the task as launched; since then it has ended and was acknowledged."""
    local = make_home()
    spec = make_spec(("sh", "-c", "echo run >> $SHOAL_OUTPUT/runs"))
    start_group(local.cluster, (spec,))
    wait_until(lambda: local.phase(spec.key) == "Ended")
    ledger = local.home.node("one").ledger
    older = ledger.with_name("older.db")
    with closing(sqlite3.connect(ledger)) as database, closing(sqlite3.connect(older)) as copy:
        database.backup(copy)
        copy.execute(
            "UPDATE tasks SET progress = json_remove(CAST(progress AS TEXT), '$.outcome', '$.ended')"
        )
        copy.commit()
    local.cluster.acknowledge(spec.key)
    wait_until(lambda: not local.cluster.list().tasks)
    local.kill("one")
    for suffix in ("-wal", "-shm"):
        ledger.with_name(ledger.name + suffix).unlink(missing_ok=True)
    older.replace(ledger)
    local.up()
    wait_until(lambda: local.phase(spec.key) == "Ended")
    assert local.task(spec.key).outcome.reason == "SupervisorLost"
    runs = local.home.output / spec.namespace / spec.job_uid / "runs"
    assert runs.read_text() == "run\n"


def test_damage_is_put_aside_and_named(tmp_path):
    file, said = tmp_path / "file", []
    statefiles.write(file, b"12")
    assert statefiles.read(file, int, said.append) == 12
    file.write_bytes(b"garbage")
    assert statefiles.read(file, int, said.append) is None
    (aside,) = tmp_path.glob("file.damaged-*")
    assert aside.read_bytes() == b"garbage"
    assert len(said) == 1
    assert str(file) in said[0]
    assert aside.name in said[0]
    file.write_bytes(b"more")
    assert statefiles.read(file, int, said.append) is None
    assert len(list(tmp_path.glob("file.damaged-*"))) == 2


def test_a_copy_takes_the_place_of_a_damaged_file(tmp_path):
    file, copy, said = tmp_path / "file", tmp_path / "copy", []
    statefiles.write(file, b"12", copy=copy)
    file.write_bytes(b"")
    assert statefiles.read(file, int, said.append, copy=copy) == 12
    assert file.read_bytes() == b"12"
    copy.write_bytes(b"?")
    file.write_bytes(b"?")
    assert statefiles.read(file, int, said.append, copy=copy) is None
    assert len(said) == 3


@pytest.mark.parametrize("damage", DAMAGE)
def test_declarations_settings_and_notes_survive_damage(make_home, damage):
    local = make_home()
    home = local.home
    declared = nodes.load(home)
    home.nodes_json.write_bytes(DAMAGE[damage](home.nodes_json.read_bytes()))
    assert nodes.load(home) == declared
    assert nodes.load(home) == declared
    settings.save(home, settings.ClusterSettings())
    home.settings_json.write_bytes(DAMAGE[damage](home.settings_json.read_bytes()))
    watched = [value for name, value in vars(settings).items() if name in ("LiveSettings", "Watched")]
    assert watched[0](home)() == settings.ClusterSettings()
    groups_note = home.node("one").path / "cgroups.json"
    if groups_note.exists():
        groups_note.write_bytes(DAMAGE[damage](groups_note.read_bytes()))
        assert groups.prepare(home.node("one"))
    cache = home.run / "isolations.json"
    known = probe.probe(cache)
    cache.write_bytes(DAMAGE[damage](cache.read_bytes()))
    assert probe.probe(cache) == known


@pytest.mark.parametrize("damage", [*DAMAGE.values(), lambda _: b'{"reason": "Cancelled"}'])
def test_a_stop_whose_file_is_damaged_still_ends_the_task(make_home, make_spec, damage):
    local = make_home()
    spec = make_spec(("sleep", "600"))
    start_group(local.cluster, (spec,))
    wait_until(lambda: local.phase(spec.key) == "Running")
    started = local.started(local.task(spec.key))
    os.kill(started.supervisor_pid, signal.SIGSTOP)
    local.cluster.stop(spec.key, grace_seconds=0.2, reason="Cancelled")
    stop = local.home.node("one").tasks / f"{spec.namespace}.{spec.name}" / taskfiles.STOP
    wait_until(lambda: stop.exists() and stop.stat().st_size > 0)
    stop.write_bytes(damage(stop.read_bytes()))
    os.kill(started.supervisor_pid, signal.SIGCONT)
    wait_until(lambda: local.phase(spec.key) == "Ended")
    assert local.task(spec.key).outcome.stop_reason == "Cancelled"
