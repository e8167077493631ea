"""What tasks leave on the disk is removed, whatever they made of it, and nothing else is."""

import contextlib
import os
import subprocess
import time
from pathlib import Path

import pytest

from shoal.cluster.local import groups
from shoal.cluster.local.isolation import cgroups, cleanup
from tests.support.require import require


def descriptors():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def nest(folder, depth):
    """Folders in each other, `depth` of them, as a task makes them: by one name after another."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = inner
    return here


@pytest.mark.slow
def test_a_deep_tree_is_removed_with_few_descriptors(tmp_path, monkeypatch):
    tree = tmp_path / "tree"
    tree.mkdir()
    deepest = nest(tree, 1_500)
    with os.fdopen(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=deepest), "w") as file:
        file.write("x")
    os.close(deepest)
    most = []
    scan = os.scandir

    def counting(descriptor):
        most.append(descriptors())
        return scan(descriptor)

    monkeypatch.setattr(cleanup.os, "scandir", counting)
    before = descriptors()
    assert cleanup.remove_tree(tree) == []
    assert not tree.exists()
    assert max(most) <= before + cleanup.DEPTH + 4
    assert descriptors() == before


def test_a_wide_tree_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(cleanup, "BATCH", 64)
    tree = tmp_path / "tree"
    for name in range(200):
        (tree / f"folder{name}").mkdir(parents=True)
        (tree / f"file{name}").touch()
    assert cleanup.remove_tree(tree) == []
    assert not tree.exists()


def test_links_are_removed_and_never_followed(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "kept").touch()
    other.chmod(0o500)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "folder").symlink_to(other)
    (tree / "file").symlink_to(other / "kept")
    (tree / "nothing").symlink_to("nowhere")
    assert cleanup.remove_tree(tree) == []
    assert (other / "kept").exists()
    assert other.stat().st_mode & 0o777 == 0o500
    (tmp_path / "link").symlink_to(other)
    assert cleanup.remove_tree(tmp_path / "link") == []
    assert (other / "kept").exists()


def test_names_that_the_removal_would_use_are_no_obstacle(tmp_path, monkeypatch):
    monkeypatch.setattr(cleanup, "DEPTH", 8)
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(1, 10):
        taken = tree / f".{os.getpid()}.{number}"
        if number % 2:
            (taken / "full").mkdir(parents=True)
        else:
            taken.touch()
    os.close(nest(tree, 21 * 8))
    assert cleanup.remove_tree(tree) == []
    assert not tree.exists()


def test_what_cannot_be_removed_is_named_and_the_rest_goes(tmp_path):
    tree = tmp_path / "tree"
    (tree / "a/mounted").mkdir(parents=True)
    (tree / "b").mkdir()
    mount = ["mount", "-t", "tmpfs", "tmpfs", str(tree / "a/mounted")]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        require("mount", f"no tmpfs can be mounted here: {done.stderr.strip()}")
    try:
        (tree / "a/mounted/kept").touch()
        (problem,) = cleanup.remove_tree(tree)
        assert problem == f"{tree}/a/mounted: it is on another file system"
        assert (tree / "a/mounted/kept").exists()
        assert not (tree / "b").exists()
    finally:
        subprocess.run(["umount", str(tree / "a/mounted")], check=True)
    assert cleanup.remove_tree(tree) == []


def test_it_ends_at_its_deadline(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    os.close(nest(tree, 100))
    assert cleanup.remove_tree(tree, timeout_seconds=-1) == [f"{tree}: it takes too long"]
    assert cleanup.remove_tree(tree) == []


@pytest.mark.process
def test_nested_control_groups_are_ended_and_removed():
    parents = groups.prepare_parents(f"nested-{os.getpid()}")
    if not parents:
        require("cgroups", "no control groups can be made here")
    try:
        parent = next(iter(parents.values()))
        group = Path(parent, "default.task")
        group.mkdir()
        here = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
        sleepers = []
        for depth in range(1_200):
            os.mkdir("d", dir_fd=here)
            inner = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
            os.close(here)
            here = inner
            if depth in (3, 1_199):
                sleepers.append(subprocess.Popen(["sleep", "600"]))
                procs = os.open("cgroup.procs", os.O_WRONLY, dir_fd=here)
                os.write(procs, str(sleepers[-1].pid).encode())
                os.close(procs)
        os.close(here)
        deadline = time.monotonic() + 20
        while not cgroups.remove([str(group)], timeout_seconds=0.1):
            for sleeper in sleepers:
                sleeper.poll()
            assert time.monotonic() < deadline
        assert not group.exists()
        assert {sleeper.wait() for sleeper in sleepers} == {-9}
    finally:
        groups.release_parents(parents)


@pytest.mark.slow
def test_a_parent_whose_last_process_is_ending_is_removed_all_the_same():
    parents = groups.prepare_parents(f"test-{os.getpid()}-ending")
    if not parents:
        require("cgroups", "no control group can be made here")
    with subprocess.Popen(["sleep", "0.3"]) as ending:
        for folder in set(parents.values()):
            with contextlib.suppress(OSError):  # version 2 takes none where it hands controllers down
                (Path(folder) / "cgroup.procs").write_text(str(ending.pid))
        groups.release_parents(parents)
    assert not [folder for folder in parents.values() if Path(folder).exists()]
