"""A disk that is really full, and shared memory that is (`training-N8`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.elastic.checkpoint.loader import load
from shoal.elastic.checkpoint.manifest import list_checkpoints
from shoal.elastic.checkpoint.saver import Saver
from tests.elastic.checkpoint.states import same, state_of
from tests.support.disk import fill, small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk with room for two checkpoints and not for three."""
    with small_disk(tmp_path / "disk", 16 << 20) as disk:
        yield disk


@pytest.mark.slow
@pytest.mark.parametrize("leave_kib", [0, 8, 3000, 6100, 6200, 6280])
def test_a_full_disk(leave_kib: int, disk: Path, place: Path) -> None:
    """`training-N8`: wherever it runs out, the one before stays, the trouble is told, saving goes on."""
    folder = disk / "checkpoints"
    saver = Saver(folder, keep=1, memory=place)
    saver.save(state_of(1), 1)
    assert saver.wait(60.0)
    filler = fill(disk, leave_kib * 1024)
    saver.save(state_of(2), 2)
    assert saver.wait(60.0)
    error = saver.take_error()
    if error is not None:
        assert error.code == "NoSpace"
        assert "step 2" in str(error)
    assert leave_kib > 6100 or error is not None
    assert len(list(folder.iterdir())) == 1
    expected = 1 if error is not None else 2
    assert [manifest.step for manifest in list_checkpoints(folder)] == [expected]
    kept = load(folder, memory=False)
    assert kept is not None
    assert same(kept.state, state_of(expected))
    fresh = load(folder, memory=place)
    assert fresh is not None
    assert fresh.step == 2  # memory has what the disk did not take
    filler.unlink()
    saver.save(state_of(3), 3)
    assert saver.close()
    assert saver.take_error() is None
    assert [manifest.step for manifest in list_checkpoints(folder)] == [3]


@pytest.mark.slow
def test_shared_memory_with_room_for_one_slot(
    disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The second slot is private; no page is written that is not there, so nobody gets a SIGBUS."""
    fill(disk, 9 << 20)
    saver = Saver(tmp_path / "checkpoints", memory=disk / "place")
    for step in range(1, 6):
        saver.save(state_of(step), step)
        assert saver.wait(60.0)
    assert "private memory" in caplog.text
    assert saver.close()
    assert not (disk / "place").exists()
    loaded = load(tmp_path / "checkpoints", memory=False)
    assert loaded is not None
    assert same(loaded.state, state_of(5))
