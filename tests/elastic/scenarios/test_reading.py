"""Whoever reads a state while training changes it never sees half of one: training-A9.

In the states of these tests every tensor is filled with the number of the step, so a torn one shows.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import torch

from shoal.elastic.checkpoint.loader import load
from shoal.elastic.checkpoint.saver import Saver
from shoal.elastic.errors import CheckpointError
from shoal.elastic.joining.donor import Donor
from shoal.elastic.joining.join import Applied, Follower, InUse, Snapshot, Update
from shoal.elastic.state import digest, pack
from shoal.elastic.view import Cursor

pytestmark = pytest.mark.slow

TENSORS, ELEMENTS = 16, 1 << 15
STEPS = 60
"""240 MiB in all: a donor cuts off whoever leaves a GiB waiting."""


def of_step(tensors: list[torch.Tensor]) -> float:
    """The one number that they are all filled with."""
    values = {each.min().item() for each in tensors} | {each.max().item() for each in tensors}
    assert len(values) == 1, f"torn: {values}"
    return values.pop()


def test_a_joiner_reads_while_training_goes_on():
    """training-A9: the donor's snapshot, and each later step's gradients, are of one step each, though
    the training writes into the same tensors while they are being sent."""
    donor = Donor("127.0.0.1", lambda: "key")
    tensors = [torch.zeros(ELEMENTS) for _ in range(TENSORS)]
    try:
        follower = Follower(donor.address, "key")
        deadline = time.monotonic() + 20.0
        while not donor.wanted:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        packed = pack({"parameters": tensors})
        donor.snapshot(packed, 0, Cursor(), digest(tensors))
        for step in range(1, STEPS + 1):
            gradients = [torch.full((ELEMENTS,), float(step)) for _ in range(TENSORS)]
            donor.update(0, [{"lr": 1.0}], pack(gradients))
            for tensor, gradient in zip(tensors, gradients, strict=True):
                tensor.copy_(gradient)  # the step itself
                gradient.fill_(-1.0)  # and the bucket is used again
            donor.applied(step, Cursor(0, step), pack({"buffers": tensors, "others": []}))
        seen = 0.0
        while seen < STEPS:
            event = follower.next(20.0)
            assert event is not None
            match event:
                case InUse():
                    assert event.epoch == 0
                case Snapshot():
                    assert of_step(event.tree["parameters"]) == 0.0
                    assert digest(event.tree["parameters"]) == event.digest
                case Update():
                    assert of_step([each for each in event.gradients if each is not None]) == seen + 1
                case Applied():
                    seen = of_step(event.rest["buffers"])
                    assert seen == event.step
                case other:
                    pytest.fail(f"{other}")
        follower.close()
    finally:
        donor.close()


def test_a_checkpoint_is_read_while_it_is_written(tmp_path: Path):
    """training-A9: a reader loads again and again while the training stages, changes its tensors and
    commits: each state that it sees is one step's. (It may see an older one after a newer: while it
    looks, both copies in memory may be replaced, and then it takes what is on disk.)"""
    seen: list[float] = []
    stop = threading.Event()
    torn: list[BaseException] = []

    def read() -> None:
        try:
            while not stop.is_set():
                try:
                    found = load(tmp_path)
                except CheckpointError:  # all that it had found was replaced before it could be read
                    continue
                if found is not None:
                    seen.append(of_step(found.state["tensors"]))
                    assert seen[-1] == found.step
        except BaseException as error:  # noqa: BLE001 - shown by the test's own thread
            torn.append(error)

    reader = threading.Thread(target=read)
    saver = Saver(tmp_path)
    tensors = [torch.zeros(ELEMENTS) for _ in range(TENSORS)]
    reader.start()
    try:
        step = 0
        deadline = time.monotonic() + 60.0
        while (step < STEPS or len(set(seen)) < 3) and not torn and time.monotonic() < deadline:
            step += 1
            for tensor in tensors:
                tensor.fill_(float(step))
            saver.stage({"tensors": tensors, "step": step}, step)
            for tensor in tensors:
                tensor.fill_(-1.0)
            saver.commit(step, 1)
    finally:
        stop.set()
        reader.join(60.0)
        saver.close()
    assert not torn, torn
    assert len(set(seen)) >= 3, "the reader saw too little"
