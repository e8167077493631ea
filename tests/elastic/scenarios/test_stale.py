"""What is left of an earlier attempt does not reach the next one: training-N10."""

from __future__ import annotations

import base64
import json
import signal
from pathlib import Path

import pytest

from shoal.elastic import wire
from tests.elastic.scenarios.stage import Stage

pytestmark = [pytest.mark.process, pytest.mark.slow]


def contact(stage: Stage) -> dict[str, str]:
    return json.loads((stage.folder / "coordinator.json").read_text())


def test_keys_and_workers_of_an_older_attempt(tmp_path: Path):
    """training-N10: the whole first attempt ends, but for a stopped worker, and its record, its key and
    the addresses of its groups stay behind. The second attempt has another key and later epochs; what is
    said with the old key is not heard; addresses of old epochs are no use to anybody; the group forms.
    The old worker, when it goes on, is a newcomer."""
    with Stage(tmp_path, minimum=2, samples=1800, pace=0.01) as stage:
        stage.enter("a", "b")
        stage.together("a", "b")
        stage.reach("a", 5)
        former = contact(stage)
        used = max(line["epoch"] for line in stage.lines("a") if "epoch" in line)
        stage.kill("a", signal.SIGSTOP)
        for name in ("b", "coordinator"):
            stage.kill(name)
        stage.start_coordinator({"SHOAL_ATTEMPT": "2"})
        now = contact(stage)
        assert now["key"] != former["key"]

        stale = wire.connect(now["address"], 5.0)
        stale.send({"type": "hello", "role": "worker", "key": former["key"], "name": "b",
                    "incarnation": 2, "address": "127.0.0.1:1", "epoch": used, "step": 5})  # fmt: skip
        with pytest.raises(wire.Closed):
            while True:
                stale.receive()
        stale.close()

        stage.enter("c", "d")
        stage.together("c", "d")
        begun = next(line for line in stage.lines("c") if "epoch" in line)
        assert begun["epoch"] > used, "an epoch of the older attempt was used again"
        stranger = wire.connect(now["address"], 5.0)
        stranger.send({"type": "hello", "role": "worker", "key": now["key"], "name": "e",
                       "incarnation": 0, "address": "127.0.0.1:1", "epoch": 0, "step": -1})  # fmt: skip
        blob = base64.b64encode(b"an old address" * 10).decode()
        for epoch in (used, begun["epoch"]):
            for rank in (0, 1):
                stranger.send({"type": "blob", "epoch": epoch, "rank": rank, "data": blob})
        stage.reach("c", stage.step("c") + 5)
        stranger.close()

        stage.kill("a", signal.SIGCONT)
        stage.together("c", "d", "a")
        stage.finished("a", "c", "d")
        stage.no_step_missing("c", "d")
