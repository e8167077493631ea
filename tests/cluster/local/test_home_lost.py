"""A home that is removed, replaced or loses its sockets while it is up: its processes notice, and make
anew what they can or end."""

import errno
import os
import shutil
import signal
from pathlib import Path

import pytest

from shoal.cluster.base import Refused
from shoal.cluster.local import node as node_module
from shoal.cluster.local import processes
from shoal.cluster.local.components import SERVER, is_up
from shoal.cluster.local.home import Home, Lock, Presence, listen
from shoal.cluster.local.shutdown import shut_down
from shoal.objects.errors import Unavailable
from shoal.testing.cluster import start_group
from shoal.testing.local import LocalHome, nodes, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]


def remove(folder: Path) -> None:
    """Remove a folder in which living processes may make a file at any moment."""

    def removed() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    wait_until(removed)


def test_deleted_sockets_are_made_anew_and_tasks_run_on(make_home, run_job):
    local = make_home(server=True)
    task = run_job(local)
    command = local.started(task).command_pid
    agent, server = local.pid("one"), local.pid("server")
    local.home.node("one").socket.unlink()
    local.home.api_socket.unlink()
    wait_until(lambda: is_up(local.home, SERVER) and is_up(local.home, "node-one"), 60)
    assert local.pid("one") == agent
    assert local.pid("server") != server
    wait_until(lambda: local.phase(task.spec.key) == "Running")
    assert local.started(task).command_pid == command
    assert processes.start_ticks(command)


def test_all_ends_with_a_home_that_is_removed(tmp_path, run_job):
    local = LocalHome(tmp_path / "home", nodes(one={}), server=True)
    local.up()
    command = local.started(run_job(local)).command_pid
    assert processes.of_home(str(local.home.path))
    local.cluster.close()
    remove(local.home.path)
    wait_until(lambda: not processes.of_home(str(local.home.path)), 60)
    wait_until(lambda: not processes.start_ticks(command))


def test_down_finds_what_a_removed_home_has_left(tmp_path, run_job):
    local = LocalHome(tmp_path / "home", nodes(one={}), server=True)
    local.up()
    command = local.started(run_job(local)).command_pid
    for name in ("server", "one"):
        os.kill(local.pid(name), signal.SIGSTOP)  # they notice nothing
    local.cluster.close()
    remove(local.home.path)
    assert shut_down(Home(local.home.path)).orphans >= 3
    assert not processes.of_home(str(local.home.path))
    wait_until(lambda: not processes.start_ticks(command))
    assert not shut_down(Home(local.home.path))


def test_a_replica_does_not_start_again_and_again_at_once(make_home, make_spec, monkeypatch):
    local = make_home()

    def start(job, incarnation):
        spec = make_spec(("true",), job=job, incarnation=incarnation)
        while True:
            wait_until(lambda: local.cluster.nodes()[0].ready)
            try:
                return start_group(local.cluster, (spec,))
            except Unavailable:
                continue  # so many starts keep a busy machine's agent from answering in time

    with pytest.raises(Refused) as caught:
        for number in range(node_module.PACE_INCARNATIONS + 1):
            start("again", number + 1)
    assert caught.value.reason == "TooManyRestarts"
    assert number == node_module.PACE_INCARNATIONS
    start("other", 1)


def stale(*_, **__):
    raise OSError(errno.ESTALE, "Stale file handle")


def test_what_is_gone_or_anothers_is_noticed(tmp_path, monkeypatch):
    home = Home(tmp_path / "home").create()
    lock = home.component_lock("node-one")
    assert lock.try_acquire()
    path = home.path / "a.sock"
    listener = listen(path)
    presence = Presence(lock, [path])
    assert presence.lost() == ""
    path.unlink()
    assert "a.sock" in presence.lost()
    other = listen(path)
    assert "a.sock" in presence.lost()
    assert presence.home_is_ours
    with monkeypatch.context() as silent:
        silent.setattr(os, "stat", stale)
        assert lock.is_ours, "a disk that does not answer is not a home that was removed"
    shutil.rmtree(home.path)
    assert "removed or replaced" in presence.lost()
    again = Home(tmp_path / "home").create()
    with again.component_lock("node-one") as taken:
        assert taken.try_acquire()
        assert isinstance(taken, Lock)
        assert not presence.home_is_ours
    for each in (listener, other):
        each.close()
    lock.release()
