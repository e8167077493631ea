from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.support.disk import fill, small_disk


def test_a_disk_is_full_until_its_filler_goes(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        filler = fill(disk)
        with (disk / "more").open("wb", buffering=0) as file, pytest.raises(OSError) as caught:
            file.write(b"x")
        assert caught.value.errno == errno.ENOSPC
        filler.unlink()
        (disk / "more").write_bytes(b"x" * 4096)
    assert not list((tmp_path / "disk").iterdir()), "it is mounted still"


def test_a_disk_has_as_much_room_as_was_left(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        fill(disk, leave_bytes=8192)
        with (disk / "more").open("wb", buffering=0) as file:
            assert file.write(bytes(8192)) == 8192
            with pytest.raises(OSError, match="No space"):
                file.write(b"x")


def test_a_large_disk_is_not_filled(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 30) as disk, pytest.raises(ValueError, match="large"):
        fill(disk)
