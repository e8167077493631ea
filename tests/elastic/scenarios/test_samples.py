"""Which samples are learned when the number of workers changes: training-B12, N9."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.elastic.ledger.deal import advance, next_step, share_of
from shoal.elastic.ledger.fetch import Order
from shoal.elastic.view import Cursor
from tests.elastic.scenarios.stage import Stage, cue


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("after", [1, 2, 3, 5])
def test_what_is_left_of_an_epoch_is_dealt_again(world: int, after: int):
    """training-B12: 8 samples a worker, 2 of them a batch: after 3 batches 6 x world are processed. Then
    the world changes: what is left is dealt anew, disjoint, exactly the unprocessed, though a peer pads
    it to equal shares and ours does not; the next epoch begins with all."""
    length, batch = 8 * world, 2 * world
    order = Order(length, seed=5)
    cursor, processed = Cursor(), []
    for _ in range(3):
        step = next_step(cursor, length, batch, 2)
        assert step is not None
        for rank in range(world):
            share = share_of(step, rank, world)
            assert share[1] - share[0] == 2
            processed += order.indices(0, *share)
        cursor = advance(step, length)
    assert len(set(processed)) == len(processed) == 6 * world
    left: list[int] = []
    while cursor.epoch == 0:
        step = next_step(cursor, length, batch, 2)
        assert step is not None
        for rank in range(after):
            left += order.indices(0, *share_of(step, rank, after))
        cursor = advance(step, length)
    assert len(set(left)) == len(left)
    assert set(left) == set(range(length)) - set(processed)
    assert cursor == Cursor(1, 0)


@pytest.mark.process
@pytest.mark.slow
def test_an_epoch_with_an_uneven_end(tmp_path: Path):
    """training-N9: 50 samples in batches of 16 on three workers: the last step has 2 samples, so one
    worker has none. No hang; the mean is over the samples; each once, though a worker is killed in that
    very step of the second epoch."""
    parts = {name: [cue(8, "sending", "kill", rank=2)] for name in "abcd"}
    play = {"samples": 50, "batch": 16, "epochs": 3, "parts": parts}
    with Stage(tmp_path / "four", options=["--expect", "4"], **play) as four:
        four.enter("a", "b", "c", "d")
        four.until(lambda: (four.folder / "anybody-8-sending-kill.cue").exists(), "one is killed")
        gone = four.views("a")[0][2]
        left = [name for name in ("a", "b", "c", "d") if name != gone]
        last = four.finished(*left)
    play["parts"] = {}
    with Stage(tmp_path / "one", **play) as one:
        one.enter("e")
        alone = one.finished("e")
    assert last[0]["step"] == 12
    for mine, theirs in zip(last[0]["values"], alone[0]["values"], strict=True):
        assert mine == pytest.approx(theirs, abs=1e-4)
