"""A file that says how many steps a job may make: so two jobs take turns on one machine.

Without the file a job goes on for ever. Workers of a synchronous job all stop after the same step.
"""

from __future__ import annotations

import time
from pathlib import Path

__all__ = ["allow", "wait_for_turn"]

_NAME = "limit"


def allow(folder: Path, steps: int) -> None:
    """Let the workers of a folder go on up to `steps` in all."""
    new = folder / f"{_NAME}.new"
    new.write_text(str(steps))
    new.replace(folder / _NAME)


def wait_for_turn(folder: Path, step: int, deadline_seconds: float = 300) -> None:
    """Return when step `step` may begin (steps count from 1).

    Raises:
        TimeoutError: nobody let it go on in time.
    """
    deadline = time.monotonic() + deadline_seconds
    path = folder / _NAME
    while path.exists() and int(path.read_text()) < step:
        if time.monotonic() > deadline:
            raise TimeoutError(f"step {step} was not allowed within {deadline_seconds:.0f} s")
        time.sleep(0.02)
