"""Checkpoints from the memory of a device, and back onto it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from shoal.elastic.checkpoint.loader import load
from shoal.elastic.checkpoint.saver import Saver
from tests.elastic.gpu.devices import DEVICES
from tests.elastic.gpu.test_training import alone

pytestmark = pytest.mark.slow


def state_of(trainer: Any) -> dict[str, Any]:
    return {
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "scaler": trainer.scaler.state_dict(),
    }


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_staged_is_the_state_of_that_moment(tmp_path: Path, device: str):
    """Work that was given to the device before is waited for; what comes after is not in it."""
    trainer = alone(device, None)
    saver = Saver(tmp_path / "kept", memory=False)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            for _ in range(50):
                parameter.add_(1.0)
    expected = [p.detach().cpu().clone() for p in trainer.model.parameters()]
    saver.stage(state_of(trainer), 12)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.fill_(-1.0)
    saver.commit(12)
    assert saver.wait(30.0)
    assert saver.take_error() is None
    saver.close()
    found = load(tmp_path / "kept")
    assert found is not None
    assert found.step == 12
    trainer.model.load_state_dict(found.state["model"])
    trainer.optimizer.load_state_dict(found.state["optimizer"])
    trainer.scaler.load_state_dict(found.state["scaler"])
    for parameter, value in zip(trainer.model.parameters(), expected, strict=True):
        assert parameter.device.type == device
        assert torch.equal(parameter.cpu(), value)
    moments = [state["exp_avg"] for state in trainer.optimizer.state.values()]
    assert {moment.device.type for moment in moments} == {device}
