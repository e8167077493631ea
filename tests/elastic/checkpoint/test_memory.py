"""Regions in shared memory: whose they are, who removes them, and who must not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.elastic.checkpoint import memory
from shoal.elastic.checkpoint.header import COMMITTED, STAGED, Header, pack
from shoal.elastic.checkpoint.memory import Region
from shoal.elastic.checkpoint.saver import Saver

HOLDER = """
import sys, time
from pathlib import Path
from shoal.elastic.checkpoint.memory import Region
region = Region(Path(sys.argv[1]))
print(region.path.name, flush=True)
time.sleep(60)
"""


def holder(place: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, place],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, place / process.stdout.readline().strip()


def test_closed_regions_leave_nothing(place: Path) -> None:
    first, second = Region(place), Region(place)
    assert first.path != second.path
    first.close()
    assert not first.path.exists()
    assert second.path.exists()
    second.close()
    assert not place.exists()


@pytest.mark.process
def test_a_live_writer_keeps_its_region_and_a_killed_one_does_not(place: Path) -> None:
    process, region = holder(place)
    try:
        assert memory.discard(place) == 0
        process.send_signal(signal.SIGSTOP)  # a zombie that may come back is alive too
        assert memory.discard(place) == 0
        assert region.exists()
    finally:
        process.kill()
        process.communicate()
    assert memory.discard(place) == 1
    assert not place.exists()


@pytest.mark.process
def test_the_next_writer_removes_what_a_killed_one_left(tmp_path: Path, place: Path) -> None:
    process, region = holder(place)
    process.kill()
    process.communicate()
    saver = Saver(tmp_path, memory=place)
    saver.stage({"step": 1}, 1)
    assert region.exists()  # nothing of its own is complete yet
    saver.commit(1)
    assert saver.wait(60.0)
    assert not region.exists()
    assert len(memory.committed(place)) == 1
    assert saver.close()


def test_nothing_to_discard(place: Path) -> None:
    assert memory.discard(place) == 0
    assert memory.committed(place) == []
    assert not place.exists()


def test_committed_slots_alone_are_listed(place: Path) -> None:
    region = Region(place)
    (region.path / "slot-0").write_bytes(pack(Header(STAGED, 7, 70)))
    assert memory.committed(place) == []
    head = Header(COMMITTED, 8, 80)
    (region.path / "slot-1").write_bytes(pack(head))
    assert memory.committed(place) == [(region.path / "slot-1", head)]
    region.close()


def test_the_place_is_one_per_folder_and_user(tmp_path: Path) -> None:
    ours = memory.place_for(tmp_path / "a", True)
    assert ours != memory.place_for(tmp_path / "b", True)
    assert ours == memory.place_for(tmp_path / "b" / ".." / "a", True)
    assert ours is not None
    assert f"-{os.geteuid()}-" in ours.name
    assert memory.place_for(tmp_path, False) is None
    assert memory.place_for(tmp_path, tmp_path / "c") == tmp_path / "c"


def test_what_is_not_a_folder_of_ours_is_left_alone(place: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "region").mkdir(parents=True)
    place.symlink_to(theirs)
    try:
        with pytest.raises(PermissionError):
            Region(place)
        assert memory.discard(place) == 0
        assert memory.committed(place) == []
        assert (theirs / "region").exists()
    finally:
        place.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_another_users_place_is_not_used(place: Path) -> None:
    place.mkdir()
    os.chown(place, 12345, 12345)
    try:
        with pytest.raises(PermissionError):
            Region(place)
        assert memory.committed(place) == []
    finally:
        place.rmdir()


@pytest.mark.slow
@pytest.mark.process
def test_cleaning_needs_no_torch() -> None:
    code = (
        "import sys\n"
        "import shoal.elastic.checkpoint.memory, shoal.elastic.checkpoint.manifest\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, stdin=subprocess.DEVNULL)
