"""The devices that tests are run on."""

from __future__ import annotations

import pytest
import torch

__all__ = ["DEVICES", "NEEDS_GPU"]

NEEDS_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that torch can use"),
]
DEVICES = ["cpu", pytest.param("cuda", marks=NEEDS_GPU)]
