"""Measurements in a process of their own, ended when they take too long: one that never comes to an end
costs the table its rows and nothing else."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection

from bench.row import Row

__all__ = ["Failed", "within"]


class Failed(Exception):
    """There are no rows, and the message says why."""


def within(seconds: float, measure: Callable[[], list[Row]]) -> list[Row]:
    """What `measure` gives. Raises Failed if that takes longer, or if it raises, with the last line of
    what was said; all of it goes to stderr."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    child = fork.Process(target=_measured, args=(measure, theirs))
    child.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            raise Failed(f"it was ended after {seconds:g} s")
        answer: list[Row] | str = ours.recv()
    except EOFError:
        child.join()
        raise Failed(f"its process ended with {child.exitcode}") from None
    finally:
        child.terminate()
        child.join()
        ours.close()
    if isinstance(answer, str):
        raise Failed(answer)
    return answer


def _measured(measure: Callable[[], list[Row]], answer: Connection) -> None:
    try:
        answer.send(measure())
    except Exception as error:  # noqa: BLE001  told on the other side
        traceback.print_exc()
        answer.send(f"{type(error).__name__}: {error}")
