"""The double buffer: once something is committed, a complete committed copy exists at every moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shoal.elastic.checkpoint import header as heads
from shoal.elastic.checkpoint import layout, slots
from shoal.elastic.checkpoint.buffer import Buffer
from shoal.elastic.checkpoint.header import Header
from shoal.elastic.checkpoint.memory import committed
from shoal.elastic.checkpoint.slots import Slot
from shoal.elastic.errors import CheckpointError
from tests.elastic.checkpoint.states import same


def small(step: int) -> dict[str, object]:
    return {"w": torch.full((5,), float(step)), "step": step}


def content(slot_content: slots.Content | None) -> int:
    assert slot_content is not None
    step = slot_content.header.step
    assert torch.equal(slot_content.tensors["w"], torch.full((5,), float(step)))
    return step


class Use(RuleBasedStateMachine):
    """A trainer and a writing thread that take turns in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = Buffer(None, 1)
        self.step = 0
        self.staged: int | None = None
        self.committed = 0
        self.lent: int | None = None
        self.written = 0

    @rule()
    def stage(self) -> None:
        self.step += 1
        self.buffer.stage(small(self.step), self.step)
        self.staged = self.step

    @rule(early=st.integers(0, 2))
    def commit(self, early: int) -> None:
        upto = self.step - early
        expected = self.staged is not None and self.staged <= upto
        assert self.buffer.commit(upto, epoch=3) == expected
        if expected and self.staged is not None:
            self.committed, self.staged = self.staged, None

    @rule()
    def forget(self) -> None:
        self.buffer.forget()
        self.staged = None

    @precondition(lambda self: self.lent is None and max(self.held(), default=0) > self.written)
    @rule()
    def borrow(self) -> None:
        self.lent = content(self.buffer.borrow())
        assert self.written < self.lent <= self.committed

    @precondition(lambda self: self.lent is not None)
    @rule()
    def give_back(self) -> None:
        self.buffer.give_back()
        self.written, self.lent = self.lent or 0, None

    def held(self) -> list[int]:
        return [
            slot.header.step
            for slot in self.buffer._slots
            if slot.header.state == heads.COMMITTED and content(slot.content())
        ]

    @invariant()
    def a_complete_copy_is_there(self) -> None:
        held = self.held()
        assert bool(held) == bool(self.committed)
        if held:
            assert max(held) >= max(self.written, self.lent or 0)
            assert self.lent is None or self.lent in held  # what is being written does not change


TestUse = Use.TestCase
TestUse.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def headed(*headers: Header) -> list[Slot]:
    made = [Slot(None) for _ in headers]
    for slot, header in zip(made, headers, strict=True):
        slot.header = header
    return made


def test_the_slot_to_fill() -> None:
    older, newer = headed(Header(heads.COMMITTED, 1), Header(heads.COMMITTED, 2))
    assert slots.choose([older, newer], None) is older
    assert slots.choose([newer, older], None) is older
    assert slots.choose([older, newer], older) is newer
    staged, kept = headed(Header(heads.STAGED, 9), Header(heads.COMMITTED, 2))
    assert slots.choose([staged, kept], None) is staged


def test_a_failed_stage_leaves_what_was_committed(place: Path) -> None:
    buffer = Buffer(place, 1)
    buffer.stage(small(1), 1)
    buffer.commit(1, 0)
    with pytest.raises(CheckpointError):
        buffer.stage({"w": object()}, 2)
    assert content(buffer.borrow()) == 1
    buffer.remove()


def test_what_is_in_shared_memory_is_read_by_others(place: Path) -> None:
    buffer = Buffer(place, 5)
    buffer.stage(small(1), 1)
    assert committed(place) == []
    buffer.commit(1, epoch=4)
    ((path, head),) = committed(place)
    assert (head.sequence, head.step, head.epoch) == (5, 1, 4)
    copy = slots.read(path)
    buffer.stage(small(2), 2)
    buffer.commit(2, epoch=4)
    buffer.stage(small(3), 3)
    assert content(copy) == 1  # a copy of its own
    buffer.remove()


def test_a_slot_that_is_filled_while_it_is_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = Buffer(place, 1)
    buffer.stage(small(1), 1)
    buffer.commit(1, 0)
    ((path, _),) = committed(place)
    parse = slots._parse

    def and_meanwhile(*arguments: Any) -> slots.Content:
        found = parse(*arguments)
        for step in (2, 3):
            buffer.stage(small(step), step)
            buffer.commit(step, 0)
        assert found.tensors["w"][0] == 3.0  # what is about to be copied is another state's
        return found

    monkeypatch.setattr(slots, "_parse", and_meanwhile)
    with pytest.raises(CheckpointError, match="its writer has replaced it"):
        slots.read(path)
    buffer.remove()


def test_hashes_are_compared_once_they_are_counted(place: Path) -> None:
    buffer = Buffer(place, 1)
    buffer.stage(small(1), 1)
    buffer.commit(1, 0)
    lent = buffer.borrow()
    assert lent is not None
    buffer.vouch(layout.hashed(lent.places, lent.tensors))
    ((path, _),) = committed(place)
    assert content(slots.read(path)) == 1
    lent.tensors["w"][3] = 7.0
    with pytest.raises(CheckpointError, match="hash of the tensors"):
        slots.read(path)
    buffer.remove()


def test_states_that_grow_and_shrink(place: Path) -> None:
    buffer = Buffer(place, 1)
    for step, size in enumerate([3, 100_000, 7, 300_000, 0, 5]):
        buffer.stage({"w": torch.arange(float(size)), "text": "x" * size}, step)
        assert buffer.commit(step, 0)
        lent = buffer.borrow()
        assert lent is not None
        assert same(dict(lent.tensors), {"w": torch.arange(float(size))})
        buffer.give_back()
    buffer.remove()


def test_waits_end_at_their_deadline() -> None:
    buffer = Buffer(None, 1)
    assert buffer.wait(0.0)
    buffer.stage(small(1), 1)
    buffer.commit(1, 0)
    assert not buffer.wait(0.01)
    buffer.borrow()
    assert not buffer.wait(0.01)
    buffer.give_back()
    assert buffer.wait(0.0)
    buffer.finish()
    assert buffer.borrow() is None
