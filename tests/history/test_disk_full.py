"""A disk that is really full: a tmpfs of a few pages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.history import segments
from shoal.history.sql import SqlHistory
from shoal.testing.history import entry, ids
from tests.support.disk import fill, small_disk

PAGE = 4096


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a megabyte."""
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        yield disk


@pytest.mark.slow
def test_a_log_goes_on_once_there_is_room(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "RETRY_SECONDS", 0.0)
    writer = segments.Writer(str(disk / "log"), 64 * PAGE, 4)
    writer.write(b"before\n", 1.0)
    filler = fill(disk)
    for number in range(3 * PAGE):
        writer.write(b"lost\n", 2.0 + number)
    lost = writer.dropped_bytes
    assert 2 * PAGE < lost < 15 * PAGE  # the page that was begun took the rest
    filler.unlink()
    writer.write(b"after\n", 1e6)
    writer.close()
    chunks = list(segments.Reader(str(disk / "log")).read())
    assert chunks[-1] == (1e6, writer.offset - len(b"after\n"), b"after\n")
    assert sum(len(data) for _, _, data in chunks) + lost == writer.offset
    files = list((disk / "log").iterdir())
    assert len(files) <= 6, files  # trying again leaves no litter


def test_bounds_larger_than_the_disk(disk: Path) -> None:
    """The log ends where the disk does, and the task is not hurt."""
    writer = segments.Writer(str(disk / "log"), 64 * PAGE, 1000)
    for number in range(1000):
        writer.write(b"x" * PAGE, float(number))
    writer.close()
    reader = segments.Reader(str(disk / "log"))
    assert reader.size == 1000 * PAGE
    assert 0 < sum(len(data) for _, _, data in reader.read()) < 1 << 20
    assert writer.last_error is not None


def test_a_log_on_a_full_disk_from_the_start(disk: Path) -> None:
    filler = fill(disk)
    writer = segments.Writer(str(disk / "log"))
    writer.write(b"lost", 1.0)
    filler.unlink()
    writer.close()
    assert segments.Reader(str(disk / "log")).size == 4


@pytest.mark.slow
def test_history_stays_readable_and_is_written_later(disk: Path) -> None:
    history = SqlHistory(f"sqlite:///{disk}/history.db")
    history.append((entry("before", 1.0),))
    assert ids(history) == ["before"]
    filler = fill(disk)
    history.append(tuple(entry(str(n), 2.0 + n, message="m" * 1000) for n in range(200)))
    assert ids(history) == ["before"]
    filler.unlink()
    deadline = time.monotonic() + 60.0
    while len(ids(history)) < 201 and time.monotonic() < deadline:
        history.flush()
    assert ids(history) == ["before", *(str(n) for n in range(200))]
    history.close()
