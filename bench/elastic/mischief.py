"""What keeps a live worker from answering: the driver asks for it, the worker does it in its loop.

The driver leaves a file `do.NAME` in the job's folder; the worker called NAME takes it away and does
what it says at the begin of its next step. Torch is imported in the worker alone.
"""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

from bench.elastic.marks import Recorder

__all__ = ["ask", "obey"]

_FORM = "do.{}"


def ask(folder: Path, name: str, what: str) -> None:
    """Have the worker called `name` do `stall SECONDS`, `evaluate SECONDS` or `recompile`."""
    new = folder / f"ask.{name}"
    new.write_text(what)
    new.replace(folder / _FORM.format(name))


def obey(folder: Path, name: str, recorder: Recorder) -> None:
    """Do what was asked for since the last call, if anything was, and mark its end.

    Raises:
        ValueError: there is no such thing to do.
    """
    path = folder / _FORM.format(name)
    if not path.exists():
        return
    words = path.read_text().split()
    path.unlink()
    match words:
        case ["stall", seconds]:
            # a call into C that keeps the interpreter's lock: no other thread of this process runs
            ctypes.PyDLL(None).usleep(int(float(seconds) * 1e6))
        case ["evaluate", seconds]:
            _evaluate(float(seconds))
        case ["recompile"]:
            _recompile()
        case _:
            raise ValueError(f"a worker cannot do {' '.join(words)!r}")
    recorder.event(f"did:{words[0]}:{time.monotonic_ns()}")


def _evaluate(seconds: float) -> None:
    import torch

    weight, until = torch.randn(256, 256), time.monotonic() + seconds
    with torch.no_grad():
        while time.monotonic() < until:
            weight = torch.tanh(weight @ weight)


def _recompile() -> None:
    import torch

    torch.compiler.reset()
    with torch.no_grad():
        torch.compile(lambda x: (x.sin() @ x.cos()).relu().sum())(torch.randn(64, 64))
