"""The random state of a rank: saved at the start of each step, for a step that is run again."""

# torch's own types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import random
import sys
from typing import Any

import torch

__all__ = ["capture", "restore", "seed"]


def capture() -> dict[str, Any]:
    """Of torch and its GPUs if any is in use, Python, and NumPy where a script has imported it."""
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_initialized():
        # kept by the host: a GPU that this process does not use is not woken
        state["cuda"] = torch.cuda.get_rng_state_all()
    if (numpy := sys.modules.get("numpy")) is not None:
        state["numpy"] = numpy.random.get_state()
    return state


def restore(state: dict[str, Any]) -> None:
    """Go back to what `capture` saw, on as many GPUs as there are now."""
    # a copy: torch 2.15 reads past the end of a state that is a view into a larger block
    torch.set_rng_state(state["torch"].clone())
    random.setstate(state["python"])
    if "cuda" in state and torch.cuda.is_initialized():
        for device, each in zip(range(torch.cuda.device_count()), state["cuda"], strict=False):
            torch.cuda.set_rng_state(each.clone(), device)
    if "numpy" in state and (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.set_state(state["numpy"])


def seed(number: int) -> None:
    """Begin anew, differently for each number."""
    torch.manual_seed(number)
    random.seed(number)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(number % (1 << 32))
