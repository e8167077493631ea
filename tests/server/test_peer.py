from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.server.peer import Processes, peer_of, task_evidence

OURS, THEIRS = "pid:[4026531836]", "pid:[4026532999]"


class Tree:
    """A /proc that the test writes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._namespace("self", OURS)

    def add(
        self, pid: int, parent: int, *command: str, space: str = OURS, group: str = "0::/user.slice"
    ) -> None:
        self._namespace(str(pid), space)
        folder = self.root / str(pid)
        (folder / "stat").write_text(f"{pid} (a) b) c) S {parent} 1 1 0")
        (folder / "cgroup").write_text(group + "\n")
        (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in command))

    def _namespace(self, pid: str, space: str) -> None:
        (self.root / pid / "ns").mkdir(parents=True)
        (self.root / pid / "ns" / "pid").symlink_to(space)

    def evidence(self, pid: int) -> str:
        return task_evidence(pid, Processes(str(self.root)))[1]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path)
    made.add(1, 0, "/sbin/init")
    made.add(10, 1, "bash")
    return made


AGENT = ("python", "-P", "-m", "shoal.cluster.local.agent", "--home", "/h", "--node", "local")
SUPERVISOR = ("python", "-I", "-S", "/lib/shoal/cluster/local/supervisor.py", "/h/nodes/n/tasks/a.b")


def test_a_shell_and_its_children_are_nobodys_task(tree: Tree) -> None:
    tree.add(11, 10, "shoal", "get", "jobs")
    assert tree.evidence(11) == ""


def test_a_process_below_an_agent_or_a_supervisor_is_a_tasks(tree: Tree) -> None:
    tree.add(20, 1, *AGENT)
    tree.add(21, 20, *SUPERVISOR)
    tree.add(22, 21, "sh")
    tree.add(23, 22, "shoal", "get", "jobs")
    tree.add(24, 20, "a daemon whose parent died")
    for pid in (21, 22, 23, 24):
        assert "started by a task" in tree.evidence(pid)
    assert tree.evidence(20) == ""  # the agent itself is part of the platform


def test_words_about_an_agent_do_not_make_one(tree: Tree) -> None:
    tree.add(30, 10, "bash", "-c", "python -m shoal.cluster.local.agent")
    tree.add(31, 30, "shoal", "get", "jobs")
    tree.add(32, 10, "vim", "see /src/shoal/cluster/local/supervisor.py")
    tree.add(33, 32, "shoal", "get", "jobs")
    assert tree.evidence(31) == tree.evidence(33) == ""


def test_another_pid_namespace_is_a_tasks(tree: Tree) -> None:
    tree.add(40, 1, "python", space=THEIRS)
    assert "PID namespace" in tree.evidence(40)


@pytest.mark.parametrize(
    ("group", "task"),
    [
        ("0::/user.slice/shoal-1a2b3c4d-local/default.train-x-worker-0-1", True),
        ("4:memory:/a/shoal-1a2b3c4d-local-0/default.train-x-worker-0-1\n0::/", True),
        ("0::/system.slice/shoal-server.service", False),
        ("0::/user.slice/shoal-1a2b3c4d-local", False),
    ],
)
def test_a_tasks_control_group_tells(tree: Tree, group: str, task: bool) -> None:
    tree.add(50, 10, "python", group=group)
    assert bool(tree.evidence(50)) is task


def test_what_cannot_be_seen_is_refused(tree: Tree) -> None:
    assert "outside the server's PID namespace" in tree.evidence(0)
    assert "has ended" in tree.evidence(999)
    tree.add(60, 61, "an orphan whose parent cannot be read")
    assert tree.evidence(60)


def test_a_loop_of_parents_ends(tree: Tree) -> None:
    tree.add(70, 71, "a")
    tree.add(71, 70, "b")
    assert "ancestors" in tree.evidence(70)


def test_the_kernel_tells_who_connects() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = peer_of(ours)
    assert (peer.pid, peer.uid) == (os.getpid(), os.getuid())


@pytest.mark.process
@pytest.mark.slow
def test_a_process_that_has_ended_is_refused(tmp_path: Path) -> None:
    """Its pid may belong to anybody by the time somebody looks."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        subprocess.run(
            [sys.executable, "-c", f"import socket; socket.socket(1).connect({str(path)!r})"], check=True
        )
        connection, _ = listener.accept()
        with connection:
            assert "ended" in peer_of(connection).evidence
