"""The thread that writes behind: order, bounds, failure, the end."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from shoal.history.batching import Batcher
from shoal.objects.errors import Unavailable


class Disk:
    """Takes what is written, when it may."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.batches = 0
        self.open = threading.Event()
        self.open.set()
        self.broken = False

    def write(self, items: Sequence[str]) -> None:
        assert self.open.wait(60.0)
        if self.broken:
            raise Unavailable("the disk is full")
        self.batches += 1
        self.written += items


def dropped(count: int) -> str:
    return f"{count} dropped"


def test_everything_is_written_in_order_and_in_batches() -> None:
    disk = Disk()
    disk.open.clear()
    batcher = Batcher(disk.write, dropped)
    wanted = [str(number) for number in range(5000)]
    for item in wanted:
        batcher.submit([item])
    disk.open.set()
    batcher.flush(60.0)
    assert disk.written == wanted
    assert disk.batches <= 5
    batcher.close()


def test_submitting_never_waits_and_what_has_no_room_is_counted() -> None:
    disk = Disk()
    disk.open.clear()
    batcher = Batcher(disk.write, dropped, bound=10)
    batcher.submit(["first"])
    for number in range(30):
        batcher.submit([str(number)])
    disk.open.set()
    batcher.flush(60.0)
    batcher.close()
    kept = len(disk.written) - 2
    assert disk.written[-1] == f"{30 - kept} dropped"
    assert disk.written[:-1] == ["first", *(str(number) for number in range(kept))]
    assert kept in (9, 10)


def test_a_failed_batch_is_written_later(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    disk.broken = True
    batcher = Batcher(disk.write, dropped)
    batcher.submit(["a", "b"])
    with pytest.raises(Unavailable, match="disk is full"):
        batcher.flush(60.0)
    batcher.submit(["c"])
    disk.broken = False
    batcher.close()
    assert disk.written == ["a", "b", "c"]
    assert "cannot be written: the disk is full" in caplog.text


def test_closing_while_it_fails_says_what_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    disk.broken = True
    batcher = Batcher(disk.write, dropped)
    batcher.submit(["a", "b"])
    batcher.close()
    batcher.close()
    assert "closed with 2 entries not written" in caplog.text
    batcher.submit(["c"])
    assert "1 entries came too late" in caplog.text


def test_waiting_has_an_end() -> None:
    disk = Disk()
    disk.open.clear()
    batcher = Batcher(disk.write, dropped)
    batcher.submit(["a"])
    with pytest.raises(Unavailable, match="behind"):
        batcher.flush(0.05)
    disk.open.set()
    batcher.close()
    assert disk.written == ["a"]


def test_an_entry_that_cannot_be_written_costs_only_itself(caplog) -> None:
    written: list[int] = []

    def write(items) -> None:
        if 3 in items:
            raise TypeError("no such column")
        written.extend(items)

    batcher = Batcher(write, lambda count: -count)
    batcher.submit([1, 2, 3, 4])
    batcher.flush(10)
    batcher.submit([5])
    batcher.flush(10)
    batcher.close()
    assert written == [1, 2, 4, 5]
    assert batcher.refused == 1
    assert "cannot be kept in history" in caplog.text
