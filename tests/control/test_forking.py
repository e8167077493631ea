"""Forks of output folders: what is copied, linked and left out, and one that was interrupted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.control import forking
from shoal.control.forking import fork_output

CHECKPOINT = "00000007-step-40-0a1b2c3d"


def source_of(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "logs").mkdir(parents=True)
    (source / "model.pt").write_bytes(b"weights" * 1000)
    (source / "logs" / "points.json").write_text("{}")
    for name in (CHECKPOINT, f".pending-{CHECKPOINT}"):
        folder = source / "checkpoints" / name
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{}")
        (folder / "0.bin").write_bytes(b"state")
    (source / "newest").symlink_to("/etc/passwd")
    os.mkfifo(source / "pipe")
    return source


def test_a_fork_has_the_files_and_writes_to_none_of_the_first(tmp_path: Path) -> None:
    source, target = source_of(tmp_path), tmp_path / "target"
    assert fork_output(source, target, without="logs")
    assert (target / "model.pt").read_bytes() == b"weights" * 1000
    (target / "model.pt").write_bytes(b"other")
    assert (source / "model.pt").read_bytes() == b"weights" * 1000
    assert not (target / "logs").exists()
    assert not (target / "pipe").exists()
    assert (target / "newest").readlink() == Path("/etc/passwd")
    assert [each.name for each in tmp_path.iterdir() if each.name.endswith(".fork")] == []


def test_only_complete_checkpoints_are_hard_linked(tmp_path: Path) -> None:
    source, target = source_of(tmp_path), tmp_path / "target"
    fork_output(source, target)
    linked = {
        str(path.relative_to(target))
        for path in target.rglob("*")
        if path.is_file() and not path.is_symlink() and path.stat().st_nlink > 1
    }
    assert linked == {f"checkpoints/{CHECKPOINT}/{name}" for name in ("manifest.json", "0.bin")}


def test_an_interrupted_fork_is_made_again_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = source_of(tmp_path), tmp_path / "target"
    torn = tmp_path / "target.fork"
    torn.mkdir()
    (torn / "model.pt").write_bytes(b"half")  # of a server that was killed
    assert fork_output(source, target)
    assert (target / "model.pt").read_bytes() == b"weights" * 1000
    assert not torn.exists()
    assert not fork_output(source, target), "what is there is not replaced"

    def full(entry: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(forking, "_copy_file", full)
    with pytest.raises(OSError, match="No space left"):
        fork_output(source, tmp_path / "other")
    assert not list(tmp_path.glob("other*"))
