"""Many checkpoints, readers beside a live writer: nothing piles up, and no mixture is ever read."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from shoal.elastic.checkpoint import memory, slots
from shoal.elastic.checkpoint.saver import Saver
from shoal.elastic.errors import CheckpointError
from tests.elastic.checkpoint.states import state_of


def held() -> tuple[int, int, int]:
    """Open descriptors, maps of slots and threads of this process."""
    maps = Path("/proc/self/maps").read_text().count("slot-")
    return len(os.listdir("/proc/self/fd")), maps, threading.active_count()  # noqa: PTH208


@pytest.mark.slow
def test_nothing_piles_up(tmp_path: Path, place: Path) -> None:
    before = held()
    during = set[tuple[int, int, int]]()
    for _ in range(3):
        saver = Saver(tmp_path, memory=place)
        for step in range(1, 15):
            saver.save(state_of(step), step)
            if step > 3:
                assert saver.wait(60.0)
                during.add(held())
        assert saver.close()
        del saver
        assert held() == before
    assert len(during) == 1, during


@pytest.mark.slow
def test_readers_beside_a_live_writer(tmp_path: Path, place: Path) -> None:
    """A copy that was replaced while it was read is refused, never half old and half new."""
    over = threading.Event()
    saver = Saver(tmp_path, memory=place)
    saver.save(state_of(1), 1)

    def write() -> None:
        step = 1
        while not over.is_set():
            step += 1
            saver.save(state_of(step), step)

    writer = threading.Thread(target=write)
    writer.start()
    whole = refused = 0
    try:
        for _ in range(400):
            for path, _ in memory.committed(place):
                try:
                    copy = slots.read(path)
                except CheckpointError:
                    refused += 1
                    continue
                step = copy.header.step
                weights = [t for name, t in copy.tensors.items() if name.startswith("model.")]
                assert {value for t in weights for value in (t.min().item(), t.max().item())} == {
                    float(step)
                }
                whole += 1
            if whole >= 30 and refused >= 3:
                break
    finally:
        over.set()
        writer.join(60.0)
    assert saver.close()
    print(f"{whole} whole, {refused} refused")
    assert whole >= 30
