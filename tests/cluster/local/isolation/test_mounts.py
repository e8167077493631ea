"""In which order what is covered, and what comes back onto what: no mount is made here."""

import os

import pytest

from shoal.cluster.local import supervisor_plan
from shoal.cluster.local.isolation import namespaces
from shoal.cluster.local.isolation.mounts import View, aliases, arrange, is_of_the_system, within


@pytest.mark.parametrize(
    ("covered", "kept", "expected"),
    [
        (["/tmp"], [], [("/tmp", [])]),
        (["/tmp"], ["/home/me", "/tmp/x"], [("/tmp", ["/tmp/x"])]),
        (["/h", "/tmp"], ["/h/out/1", "/tmp/w"], [("/h", ["/h/out/1"]), ("/tmp", ["/tmp/w"])]),
        # a home in a working directory in /tmp: the directory comes back, then the home is covered
        (
            ["/tmp/w/h", "/tmp"],
            ["/tmp/w", "/tmp/w/h/out"],
            [("/tmp", ["/tmp/w"]), ("/tmp/w/h", ["/tmp/w/h/out"])],
        ),
        # a home in /tmp, beside the working directory
        (
            ["/tmp", "/tmp/h"],
            ["/tmp/w", "/tmp/h/out"],
            [("/tmp", ["/tmp/w"]), ("/tmp/h", ["/tmp/h/out"])],
        ),
        # what is kept around a cover is not bound anywhere for it
        (["/home/me/h"], ["/home/me"], [("/home/me/h", [])]),
        (["/dev", "/dev/shm"], ["/dev/shm/w"], [("/dev", []), ("/dev/shm", ["/dev/shm/w"])]),
        # names that only begin alike
        (["/tmp"], ["/tmpfoo/x"], [("/tmp", [])]),
    ],
)
def test_arrange(covered, kept, expected):
    assert arrange(covered, kept) == expected


def test_within():
    assert within("/a/b", "/a")
    assert within("/a", "/a")
    assert within("/a", "/")
    assert not within("/ab", "/a")
    assert not within("/a", "/a/b")


def test_a_folder_that_is_seen_in_two_places(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    other = tmp_path / "other"
    other.symlink_to(tmp_path)  # the same files at another place, as a second mount would give
    spaced = tmp_path / "with space"
    spaced.symlink_to(tmp_path)
    mountinfo = "\n".join(
        [
            "20 1 8:1 / / rw - ext4 /dev/sda1 rw",
            f"21 20 8:2 / {tmp_path} rw - ext4 /dev/sdb1 rw",
            f"22 20 8:2 / {other} rw - ext4 /dev/sdb1 rw",
            f"23 20 8:2 / {tmp_path}/with\\040space rw - ext4 /dev/sdb1 rw",
            f"24 20 8:2 /elsewhere {tmp_path}/x rw - ext4 /dev/sdb1 rw",
            f"25 20 8:3 / {tmp_path}/y rw - ext4 /dev/sdc1 rw",
        ]
    )
    assert aliases(str(home), mountinfo) == [str(home), f"{other}/home", f"{spaced}/home"]


def test_a_folder_that_is_seen_once():
    assert aliases("/usr") == ["/usr"]
    assert aliases("/no/such/place", "") == ["/no/such/place"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/proc/sys/kernel", True), ("/sys", True), ("/dev/net", True), ("/run/service/socket", True),
        ("/dev/shm", True), ("/dev/shm/project", False), ("/home/me/project", False), ("/runs", False),
        ("/srv/root/proc/sys", True), ("/srv/root", False), ("/srv/root/dev/kmsg", True),
        ("/srv/groups/job", True), ("/srv/run/socket", True),
    ],
)  # fmt: skip
def test_what_is_the_machines_is_recognised_wherever_it_is_mounted(path, expected, monkeypatch):
    mountinfo = """
        20 1 8:1 / / rw - ext4 /dev/sda1 rw
        21 20 0:5 / /proc rw - proc proc rw
        22 20 0:6 / /dev rw - devtmpfs udev rw
        23 22 0:7 / /dev/shm rw - tmpfs tmpfs rw
        24 20 0:8 / /run rw - tmpfs tmpfs rw
        25 20 0:5 / /srv/root/proc rw - proc proc rw
        26 20 0:6 / /srv/root/dev rw - devtmpfs udev rw
        27 20 0:9 / /srv/groups rw - cgroup2 cgroup2 rw
        28 20 0:8 / /srv/run rw - tmpfs tmpfs rw
    """
    monkeypatch.setattr(os.path, "samefile", lambda one, other: True)
    assert is_of_the_system(path, mountinfo.strip()) is expected


def launch(tmp_path, **fields):
    for name in (
        "scratch",
        "output",
        "rendezvous",
        "home/keys",
        "home/tasks",
        "home/project",
        "home/decisions",
        "cwd",
    ):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    isolation = {"home": str(tmp_path / "home"), "tasks_socket": str(tmp_path / "home/tasks/api.sock")}
    given = {
        "namespace": "default", "task": "t", "argv": ["true"], "env": {}, "cwd": str(tmp_path / "cwd"),
        "scratch": str(tmp_path / "scratch"), "output": str(tmp_path / "output"),
        "rendezvous": str(tmp_path / "rendezvous"), "log": {}, "isolation": isolation,
    }  # fmt: skip
    return supervisor_plan.Plan(str(tmp_path / "task"), given | fields)


def test_what_is_kept_and_what_may_be_written(tmp_path):
    view = launch(tmp_path).view(namespaces.STRICT)
    place = os.path.realpath(tmp_path)
    assert view.writable == [f"{place}/cwd", f"{place}/output", f"{place}/scratch"]
    visible = {path for path in view.kept if path.startswith(place)}
    assert visible - set(view.writable) == {f"{place}/home/tasks", f"{place}/rendezvous"}


@pytest.mark.parametrize("inside", ["project", "decisions", "keys", "", "store.db"])
@pytest.mark.parametrize("ask", ["cwd", "VIRTUAL_ENV", "PATH", "argv", "link"])
def test_nothing_that_a_job_asks_to_see_of_the_home_is_kept(tmp_path, ask, inside):
    path = str(tmp_path / "home" / inside)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "store.db").touch()
    (tmp_path / "link").symlink_to(path)
    asked = {
        "cwd": {"cwd": path},
        "VIRTUAL_ENV": {"env": {"VIRTUAL_ENV": path}},
        "PATH": {"env": {"PATH": f"{path}:/usr/bin"}},
        "argv": {"argv": ["cat", path]},
        "link": {"cwd": str(tmp_path / "link")},
    }[ask]
    view = launch(tmp_path, **asked).view(namespaces.DEFAULT)
    assert os.path.realpath(path) not in view.kept


def test_words_of_the_command_that_name_something_in_tmp_are_kept(tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    (shared / "deep").mkdir(parents=True)
    (shared / "train.py").touch()
    cover = type("Cover", (), {"name": "tmp"})()
    monkeypatch.setattr(View, "covers", lambda self: {str(shared): cover})
    argv = [
        "python",
        f"{shared}/train.py",
        f"{shared}/deep",
        f"{shared}/none",
        str(shared),
        "/",
        "train.py",
    ]
    view = launch(tmp_path, argv=argv).view(namespaces.DEFAULT)
    assert {path for path in view.kept if path.startswith(str(shared))} == {
        f"{shared}/train.py",
        f"{shared}/deep",
    }


def test_the_root_folder_as_working_directory_opens_nothing(tmp_path):
    assert "/" not in launch(tmp_path, cwd="/").view(namespaces.STRICT).writable
