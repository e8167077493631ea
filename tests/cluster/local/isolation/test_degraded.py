"""Machines that grant less than this one: made by taking it away before the supervisor starts."""

import shutil
import subprocess

import pytest

from shoal.cluster.local import supervisor_processes
from tests.cluster.local.isolation.harness import Bench, User, users

pytestmark = [pytest.mark.process, pytest.mark.slow]

NO_USER_NAMESPACES = "echo 0 > /proc/sys/user/max_user_namespaces"
MASKED_PROC = "mount -t tmpfs none /proc/fs"
"""As containers do; the kernel then lets nobody in them mount a /proc of their own."""


class Confined(User):
    """A user who was put into less first."""

    def __init__(self, user, less, options=()):
        super().__init__(f"{user.name}-confined", user.uid, user.gid, user.python)
        self.confine = [
            "unshare", "--map-root-user", *options, "sh", "-c",
            f'{less} && exec setpriv --bounding-set=-all,+setfcap --inh-caps=-all -- "$@"', "sh",
        ]  # fmt: skip

    def words(self, words):
        return [*super().words(self.confine), *words]


def confined_bench(user, less, options=()):
    made = Confined(user, less, options)
    if not shutil.which("unshare") or subprocess.run(made.words(["true"]), check=False).returncode:
        pytest.skip("this machine cannot be made to grant less")
    return Bench(made)


@pytest.fixture(params=users(), ids=lambda user: user.name)
def without_user_namespaces(request):
    bench = confined_bench(request.param, NO_USER_NAMESPACES)
    yield bench
    bench.close()


@pytest.fixture(params=users(), ids=lambda user: user.name)
def in_a_container(request):
    bench = confined_bench(request.param, MASKED_PROC, ["--mount"])
    yield bench
    bench.close()


def lacking(task):
    return dict(entry.split(": ", 1) for entry in task.started()["unenforced"])


def test_without_user_namespaces_a_task_runs_and_says_what_it_lacks(without_user_namespaces):
    bench = without_user_namespaces
    task = bench.start(
        "sh", "-c", "echo in $TMPDIR; touch $TMPDIR/x; setsid sleep 600 & exit 3", cgroup_parents={}
    )
    found = lacking(task)
    assert set(found) == {"processes", "tmp", "home", "ipc", "privileges"}
    assert "user.max_user_namespaces is 0" in found["processes"]
    below = task.below()
    assert task.exit()["exit_code"] == 3
    assert task.log().decode() == f"in {task.folder}/private/tmp\n"
    assert (task.folder / "private" / "tmp" / "x").exists()
    assert not [pid for pid in below if supervisor_processes.start_ticks(pid)]


def test_without_user_namespaces_strict_is_refused(without_user_namespaces):
    ended = without_user_namespaces.run("true", mode="strict", cgroup_parents={}).exit()
    assert (ended["exit_code"], ended["reason"]) == (126, "StartFailed")
    assert "network: user.max_user_namespaces is 0" in ended["message"]


def test_in_a_container_that_masks_proc_all_but_the_processes_are_apart(in_a_container):
    bench = in_a_container
    (bench.folder("home/keys") / "secret").write_text("secret")
    script = f"cat {bench.home}/keys/secret; touch /tmp/{bench.base.name}; setsid sleep 600 & exit 3"
    task = bench.start("sh", "-c", script, cgroup_parents={})
    assert set(lacking(task)) == {"processes"}  # its privileges it has over its own namespace alone
    below = task.below()
    assert task.exit()["exit_code"] == 3
    assert b"No such file" in task.log()
    assert (task.folder / "private" / "tmp" / bench.base.name).exists()
    assert not [pid for pid in below if supervisor_processes.start_ticks(pid)]
