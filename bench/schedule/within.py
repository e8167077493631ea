"""Measurements in a process of their own, ended when they take too long: one that never comes to an end
costs the table the rows that were still to come, and nothing else."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection

from bench.row import Row

__all__ = ["within"]

_END = ""


def within(seconds: float, measure: Callable[[], Iterable[Row]]) -> tuple[list[Row], str]:
    """What `measure` gave in this time, and why that is not all, empty if it is: it took longer, raised
    (all that was said then goes to stderr), or its process died."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    child = fork.Process(target=_measured, args=(measure, theirs))
    child.start()
    theirs.close()
    deadline = time.monotonic() + seconds
    found: list[Row] = []
    try:
        while ours.poll(max(0.0, deadline - time.monotonic())):
            said: Row | str = ours.recv()
            if isinstance(said, str):
                return found, said
            found.append(said)
        return found, f"it was ended after {seconds:g} s"
    except EOFError:
        child.join()
        return found, f"its process ended with {child.exitcode}"
    finally:
        child.terminate()
        child.join()
        ours.close()


def _measured(measure: Callable[[], Iterable[Row]], answer: Connection) -> None:
    try:
        for row in measure():
            answer.send(row)
    except Exception as error:  # noqa: BLE001  told on the other side
        traceback.print_exc()
        answer.send(f"{type(error).__name__}: {error}")
    else:
        answer.send(_END)
