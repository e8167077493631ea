"""Server and agents of a home as real processes: started once, kept alive, ended for good."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from shoal.cluster.local import components
from shoal.cluster.local import nodes as declarations
from shoal.cluster.local.components import SERVER, component_of, ensure_up, is_up, terminate
from shoal.cluster.local.home import Home, Lock
from shoal.cluster.local.shutdown import shut_down
from shoal.objects.errors import Unavailable
from shoal.testing.cluster import render_nothing, start_group
from shoal.testing.local import LocalHome, leftovers, nodes, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    yield home
    LocalHome(home.path).close()


def test_a_fresh_home_is_the_machine_as_one_node(home):
    started = ensure_up(home)
    assert started
    assert (started.server, started.nodes) == (True, ("local",))
    assert [node.name for node in declarations.load(home)] == ["local"]
    assert not ensure_up(home)


def test_a_node_that_nobody_declared_follows_the_machine(home, monkeypatch):
    ensure_up(home, server=False)
    machine = declarations.load(home)
    monkeypatch.setattr(declarations, "cpu_millis", lambda: 500)
    ensure_up(home, server=False)
    assert declarations.load(home) == machine  # it is up
    terminate(home, component_of("local"))
    ensure_up(home, server=False)
    assert declarations.load(home)[0].cpu == 500
    ensure_up(home, nodes(local={}), server=False)
    terminate(home, component_of("local"))
    ensure_up(home, server=False)
    assert declarations.load(home)[0].cpu == 2000  # somebody said so


def test_callers_that_race_start_everything_once(home):
    started = []
    threads = [
        threading.Thread(target=lambda: started.append(ensure_up(home, nodes(one={}, two={}))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.server for each in started) == [False, False, False, True]
    assert sorted(name for each in started for name in each.nodes) == ["one", "two"]


@pytest.mark.parametrize("killed", [SERVER, "one"])
def test_server_and_agents_restart_each_other(make_home, killed):
    local = make_home(server=True)
    for _ in range(2):
        before = local.pid(killed)
        os.kill(before, signal.SIGKILL)
        wait_until(lambda before=before: local.pid(killed) not in (0, before))
        component = killed if killed == SERVER else component_of(killed)
        wait_until(lambda component=component: is_up(local.home, component))
        wait_until(lambda: local.cluster.nodes()[0].ready)


def test_server_and_agent_killed_together_are_started_by_the_next_command(make_home):
    local = make_home(server=True)
    for name in (SERVER, "one"):
        os.kill(local.pid(name), signal.SIGKILL)
    wait_until(lambda: not local.pid(SERVER) and not local.pid("one"))
    started = ensure_up(local.home)
    assert (started.server, started.nodes) == (True, ("one",))


def test_what_was_taken_down_stays_down(make_home, run_job):
    local = make_home(server=True, one={}, two={})
    key = run_job(local).spec.key
    stopped = shut_down(local.home, grace_seconds=5)
    assert (stopped.server, stopped.nodes) == (True, ("one", "two"))
    assert leftovers(local.home) == []
    assert not shut_down(local.home)
    local.server = False  # a server would have its controllers look after the task
    local.up()
    wait_until(lambda: local.phase(key) == "Ended")
    assert local.task(key).outcome.stop_reason == "Shutdown"


def test_tasks_are_ended_even_if_their_agent_was_not_there(make_home, make_spec):
    local = make_home()
    spec = make_spec(("sleep", "600"))
    start_group(local.cluster, (spec,))
    wait_until(lambda: local.phase(spec.key) == "Running")
    local.kill("one")
    assert shut_down(local.home, grace_seconds=5).nodes == ("one",)
    assert leftovers(local.home) == []


WAITS_FOR_THE_OTHER = """
cd $SHOAL_OUTPUT
trap 'touch asked-$ME; until test -e asked-$OTHER; do sleep 0.05; done; touch done-$ME; exit 0' TERM
touch up-$ME
while :; do sleep 0.05; done
"""


def test_all_nodes_end_at_the_same_time(make_home, make_spec):
    """A task on each, and neither ends before both have had their SIGTERM."""
    local = make_home(one={}, two={})
    for index, (me, other) in enumerate((("one", "two"), ("two", "one"))):
        command = ("sh", "-c", WAITS_FOR_THE_OTHER)
        env = {"ME": me, "OTHER": other}
        start_group(local.cluster, (make_spec(command, node=me, index=index, job="both", env=env),))
    output = local.home.output / "default"
    wait_until(lambda: len(list(output.glob("*/up-*"))) == 2)
    assert shut_down(local.home, grace_seconds=20).nodes == ("one", "two")
    assert len(list(output.glob("*/done-*"))) == 2


@pytest.mark.parametrize("point", ["shutdown.marked", "shutdown.server.ended"])
def test_a_shutdown_that_dies_is_finished_by_the_next(make_home, run_job, point):
    local = make_home(server=True)
    run_job(local)
    source = (
        "from shoal.cluster.local.home import Home\n"
        "from shoal.cluster.local.shutdown import shut_down\n"
        f"shut_down(Home({str(local.home.path)!r}))\n"
    )
    died = subprocess.run(
        [sys.executable, "-c", source],
        env=os.environ | {"SHOAL_FAULTS": f"{point}:kill"},
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
    assert shut_down(local.home, grace_seconds=5).nodes == ("one",)
    assert leftovers(local.home) == []


def test_an_agent_that_dies_after_it_started_the_server_leaves_it_up(make_home, monkeypatch, tmp_path):
    local = make_home(server=True)
    marks = tmp_path / "fired"
    marks.mkdir()
    monkeypatch.setenv("SHOAL_FAULTS_ONCE", str(marks))
    monkeypatch.setenv("SHOAL_FAULTS", "watchdog.component.started:kill")
    local.kill("one")  # the server, who starts it again, does not know the variable
    wait_until(lambda: bool(local.pid("one")))
    local.home.down.touch()
    local.kill("one")
    components.start(local.home, component_of("one"))  # this one does
    wait_until(lambda: is_up(local.home, component_of("one")))
    server = local.pid(SERVER)
    local.home.down.unlink()
    os.kill(server, signal.SIGKILL)
    wait_until(lambda: local.pid(SERVER) not in (0, server))
    wait_until(lambda: is_up(local.home, SERVER) and is_up(local.home, component_of("one")))
    assert list(marks.iterdir())


def test_a_home_that_never_was_is_down(tmp_path):
    assert not shut_down(Home(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_a_component_that_ends_at_once_says_why(home):
    home.create()
    home.store_db.write_bytes(b"this is no database" * 1000)
    with pytest.raises(Unavailable) as caught:
        ensure_up(home)
        # the server listens before it opens its store: then it is the next look that fails
        wait_until(lambda: home.component_lock(SERVER).holder() is None)
        ensure_up(home)
        raise Unavailable("ended at once", hint="server.log")
    assert "server.log" in caught.value.hint


def test_a_second_agent_of_a_node_goes(make_home):
    local = make_home()
    pid = components.start(local.home, component_of("one"))
    assert pid != local.pid("one")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert is_up(local.home, component_of("one"))


def test_an_agent_of_a_node_that_is_not_declared_goes(make_home):
    local = make_home()
    pid = components.start(local.home, component_of("other"))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
    assert b"not declared" in local.home.component_log(component_of("other")).read_bytes()


def test_homes_anywhere(tmp_path, make_spec):
    """A path with a space that no unix socket's address can hold."""
    path = tmp_path.joinpath("my home", *["long"] * 30)
    with LocalHome(path, nodes(one={})) as local:
        assert len(str(local.home.node("one").socket)) > 150
        spec = make_spec(("sh", "-c", "exit 3"))
        start_group(local.cluster, (spec,))
        wait_until(lambda: local.phase(spec.key) == "Ended")
        assert local.task(spec.key).outcome.exit_code == 3


def test_homes_side_by_side_do_not_see_each_other(make_home, make_spec):
    first, second = make_home(), make_home()
    ports = []

    def render(group, endpoints):
        ports.extend(port for endpoint in endpoints for port in endpoint.ports.values())
        return render_nothing(group, endpoints)

    for local in (first, second):
        spec = make_spec(("sleep", "600"), job="same")
        start_group(local.cluster, (spec,), render)
        wait_until(lambda local=local, spec=spec: local.phase(spec.key) == "Running")
    assert len(set(ports)) == 2
    first.cluster.stop(spec.key, grace_seconds=5, reason="Cancelled")
    wait_until(lambda: first.phase(spec.key) == "Ended")
    assert second.phase(spec.key) == "Running"


def test_whoever_takes_too_long_with_a_home_is_named(home):
    home.create()
    with Lock(home.run / "components.lock") as lock:
        lock.acquire(1.0)
        with pytest.raises(Unavailable) as caught:
            ensure_up(home, timeout_seconds=0.05)
    assert str(os.getpid()) in caught.value.hint


def test_a_component_that_ignores_sigterm_is_killed(make_home):
    local = make_home()
    local.kill("one", signal.SIGSTOP)
    assert terminate(local.home, component_of("one"), 0.2)
    assert not local.pid("one")
    assert not terminate(local.home, component_of("one"))


def test_a_home_is_started_on_linux_only(home, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(Unavailable, match="Linux only"):
        ensure_up(home)
    assert not home.path.exists()
