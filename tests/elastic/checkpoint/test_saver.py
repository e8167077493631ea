"""What a trainer sees: states come back whole, the disk's trouble is told once, nothing waits for it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from shoal.elastic.checkpoint import durable
from shoal.elastic.checkpoint.loader import load
from shoal.elastic.checkpoint.manifest import list_checkpoints
from shoal.elastic.checkpoint.saver import Saver
from shoal.elastic.errors import CheckpointError
from tests.elastic.checkpoint.states import same, state_of


def steps(folder: Path) -> list[int]:
    return [manifest.step for manifest in list_checkpoints(folder)]


def loaded_step(folder: Path, **options: Any) -> int:
    loaded = load(folder, **options)
    assert loaded is not None
    assert same(loaded.state, state_of(loaded.step))
    return loaded.step


@pytest.mark.slow
def test_a_state_comes_back(tmp_path: Path, place: Path) -> None:
    saver = Saver(tmp_path, memory=place)
    saver.prepare(state_of(1))
    saver.save(state_of(1), 1, epoch=6)
    loaded = load(tmp_path, memory=place)
    assert loaded is not None
    assert (loaded.tier, loaded.step, loaded.epoch) == ("memory", 1, 6)
    assert same(loaded.state, state_of(1))
    assert saver.wait(60.0)
    assert saver.durable_step == 1
    assert saver.close()
    loaded = load(tmp_path, memory=place)
    assert loaded is not None
    assert (loaded.tier, loaded.step, loaded.epoch) == ("disk", 1, 6)
    assert same(loaded.state, state_of(1))


@pytest.mark.slow
def test_what_is_not_committed_is_not_there(tmp_path: Path, place: Path) -> None:
    saver = Saver(tmp_path, memory=place)
    saver.save(state_of(1), 1)
    saver.stage(state_of(2), 2)
    assert not saver.commit(1)
    assert loaded_step(tmp_path, memory=place) == 1
    saver.forget()
    assert not saver.commit(2)
    saver.stage(state_of(3), 3)
    assert saver.commit(4)  # a later step is committed, so this one is
    assert saver.close()
    assert steps(tmp_path) == [3, 1] or steps(tmp_path) == [3]


@pytest.mark.slow
def test_the_state_may_change_once_it_is_staged(tmp_path: Path, place: Path) -> None:
    state = state_of(5)
    saver = Saver(tmp_path, memory=place)
    saver.stage(state, 5)
    for tensor in state["model"].values():
        tensor.fill_(-1.0)
    state["cursor"]["position"] = -1
    saver.commit(5)
    assert saver.close()
    assert loaded_step(tmp_path) == 5


@pytest.mark.slow
def test_only_the_newest_stay(tmp_path: Path, place: Path) -> None:
    saver = Saver(tmp_path, keep=3, memory=place)
    for step in range(1, 7):
        saver.save(state_of(step), step)
        assert saver.wait(60.0)
    assert steps(tmp_path) == [6, 5, 4]
    assert saver.close()
    assert {entry.name for entry in tmp_path.iterdir()} == {m.name for m in list_checkpoints(tmp_path)}


@pytest.mark.slow
def test_a_slow_disk_holds_nothing_up(tmp_path: Path, place: Path) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def publish(_: Mapping[str, Any]) -> bool:
        reached.set()
        return go_on.wait(60.0)

    saver = Saver(tmp_path, publish=publish, memory=place)
    saver.save(state_of(1), 1)
    assert reached.wait(60.0)
    for step in range(2, 30):
        saver.save(state_of(step), step)
    assert not saver.wait(0.0)
    assert loaded_step(tmp_path, memory=place) == 29
    assert steps(tmp_path) == []
    go_on.set()
    assert saver.close()
    assert steps(tmp_path) == [29, 1]  # those in between were replaced by newer ones


@pytest.mark.slow
def test_trouble_is_told_once_and_saving_goes_on(tmp_path: Path, place: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.write_text("in the way")
    saver = Saver(folder, memory=place)
    saver.save(state_of(1), 1)
    assert saver.wait(60.0)
    error = saver.take_error()
    assert error is not None
    assert error.code == "WriteFailed"
    assert "step 1" in str(error)
    assert saver.take_error() is None
    assert saver.durable_step is None
    folder.unlink()
    saver.save(state_of(2), 2)
    assert saver.close()
    assert saver.take_error() is None
    assert steps(folder) == [2]


@pytest.mark.slow
def test_a_fenced_writer_leaves_nothing(tmp_path: Path, place: Path) -> None:
    """The coordinator's compare-and-set on the epoch refuses a zombie's checkpoint."""
    epoch = 4
    manifests: list[Mapping[str, Any]] = []

    def publish(manifest: Mapping[str, Any]) -> bool:
        manifests.append(manifest)
        return manifest["epoch"] == epoch

    saver = Saver(tmp_path, publish=publish, memory=place)
    saver.save(state_of(1), 1, epoch=4)
    assert saver.wait(60.0)
    epoch = 5
    saver.save(state_of(2), 2, epoch=4)
    assert saver.wait(60.0)
    error = saver.take_error()
    assert error is not None
    assert error.code == "Refused"
    assert [manifest["step"] for manifest in manifests] == [1, 2]
    assert len(json.dumps(manifests[0])) < 4096  # it travels in one frame
    assert saver.close()
    assert [entry.name for entry in tmp_path.iterdir()] == [manifests[0]["name"]]


@pytest.mark.slow
def test_an_answer_that_did_not_come(tmp_path: Path, place: Path) -> None:
    """The coordinator took the manifest and died: what it holds can be loaded, and goes in its time."""
    taken: list[Mapping[str, Any]] = []

    def publish(manifest: Mapping[str, Any]) -> bool:
        taken.append(manifest)
        if len(taken) == 2:
            raise ConnectionResetError("the coordinator is gone")
        return True

    saver = Saver(tmp_path, publish=publish, memory=place)
    for step in (1, 2):
        saver.save(state_of(step), step)
        assert saver.wait(60.0)
    error = saver.take_error()
    assert error is not None
    assert error.code == "Unpublished"
    assert steps(tmp_path) == [1]
    assert saver.close()
    assert loaded_step(tmp_path) == 1
    assert loaded_step(tmp_path, published=taken[1]) == 2
    assert steps(tmp_path) == [2, 1]
    saver = Saver(tmp_path, memory=place)
    saver.save(state_of(3), 3)
    assert saver.close()
    assert steps(tmp_path) == [3, 2]
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
def test_answers_that_did_not_come_twice(tmp_path: Path, place: Path) -> None:
    """Whichever of two manifests the coordinator took, its files are still there."""
    taken: list[Mapping[str, Any]] = []

    def publish(manifest: Mapping[str, Any]) -> bool:
        taken.append(manifest)
        raise TimeoutError("no answer")

    saver = Saver(tmp_path, publish=publish, memory=place)
    for step in (1, 2, 3):
        saver.save(state_of(step), step)
        assert saver.wait(60.0)
    assert saver.close()
    assert len(list(tmp_path.glob(".pending-*"))) == 2  # they do not pile up
    assert loaded_step(tmp_path, published=taken[1]) == 2
    assert loaded_step(tmp_path, published=taken[2]) == 3


@pytest.mark.slow
def test_no_room_in_shared_memory(tmp_path: Path, place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Staging goes on in private memory; asking for the pages first is what spares it a SIGBUS."""
    saver = Saver(tmp_path, memory=place)
    saver.save(state_of(1), 1)
    huge = {"w": torch.empty(1).expand(1 << 48)}  # more than can be addressed
    saver.stage(huge, 2)
    error = saver.take_error()
    assert error is not None
    assert error.code == "NoSpace"
    assert "private memory" in caplog.text
    saver.save(state_of(3), 3)
    assert saver.close()
    assert loaded_step(tmp_path) == 3


def test_a_state_that_cannot_be_saved_raises_at_once(tmp_path: Path, place: Path) -> None:
    saver = Saver(tmp_path, memory=place)
    with pytest.raises(CheckpointError, match=r"extra\.callback"):
        saver.stage({"extra": {"callback": print}}, 1)
    assert saver.close()


def test_keep_is_at_least_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep=0"):
        Saver(tmp_path, keep=0)


def test_closing_late_says_so(tmp_path: Path, place: Path) -> None:
    go_on = threading.Event()
    saver = Saver(tmp_path, publish=lambda _: go_on.wait(60.0), memory=place)
    saver.save(state_of(1), 1)
    assert not saver.close(0.05)
    go_on.set()
    assert saver.close()
    assert saver.close()
    with pytest.raises(RuntimeError, match="closed"):
        saver.stage(state_of(2), 2)


def test_unused_it_makes_nothing(tmp_path: Path, place: Path) -> None:
    saver = Saver(tmp_path / "checkpoints", memory=place)
    assert saver.wait(0.0)
    assert not saver.commit(3)
    assert saver.close()
    assert not (tmp_path / "checkpoints").exists()
    assert not place.exists()


@pytest.mark.slow
def test_wall_clocks_order_nothing(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step, now in enumerate([2e9, 1e9, 3e9, 0.0], start=1):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        saver = Saver(tmp_path, memory=place)
        saver.save(state_of(step), step)
        assert saver.close()
        assert loaded_step(tmp_path) == step


@pytest.mark.slow
def test_a_step_that_was_gone_back_to_counts_as_newer(tmp_path: Path, place: Path) -> None:
    """Who resumes from an older checkpoint by choice goes on from what is saved then."""
    for step in (100, 40):
        saver = Saver(tmp_path, memory=place)
        saver.save(state_of(step), step)
        assert saver.close()
    assert loaded_step(tmp_path) == 40


def test_sequences_go_on_from_memory_and_pending(tmp_path: Path) -> None:
    assert durable.next_sequence(tmp_path) == 1
    assert durable.next_sequence(tmp_path / "absent", [4]) == 5
    (tmp_path / ".pending-00000009-step-3-0011aabb").mkdir()
    (tmp_path / "notes").touch()
    assert durable.next_sequence(tmp_path, [4]) == 10
