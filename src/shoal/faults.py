"""Named points of failure: places where a test, or a person, may make this process die or stall.

A module that has just done something durable calls `point("agent.admit.recorded")`. Nothing happens
unless `SHOAL_FAULTS` names that point, so the cost in production is one look-up in an empty dict.

`SHOAL_FAULTS` is a comma-separated list of `POINT:ACTION[:NTH]`:

- ACTION is `kill` (SIGKILL to this process), `raise` (FaultInjected), or `delay=SECONDS`;
- NTH (1 unless given) is the visit at which it happens, counted in each process.

With `SHOAL_FAULTS_ONCE=DIRECTORY` each entry fires at most once over all processes (a marker file is
created there exclusively before the action), so that a restarted process does not die again.
`SHOAL_FAULTS_TRACE=FILE` appends `POINT PID` for each visit: the list of points a run passes.

Standard library only: the supervisor and the elastic runtime import this.
"""

from __future__ import annotations

import os
import time

__all__ = ["FaultInjected", "point"]


class FaultInjected(Exception):
    """Raised at a point with the action `raise`."""


def point(name: str) -> None:
    """Say that this process has reached `name`; does what `SHOAL_FAULTS` asks for there, if anything.

    Raises:
        FaultInjected: when the action is `raise`.
    """
    if _trace is not None:
        _append(_trace, f"{name} {os.getpid()}\n")
    actions = _armed.get(name)
    if not actions:
        return
    for armed in actions:
        armed.visit(name)


class _Armed:
    """One entry of SHOAL_FAULTS, with its count of visits."""

    def __init__(self, action: str, nth: int, once_directory: str | None) -> None:
        self.action = action
        self.nth = nth
        self.once_directory = once_directory
        self.visits = 0

    def visit(self, name: str) -> None:
        self.visits += 1
        if self.visits != self.nth or not self._first_of_all_processes(name):
            return
        if self.action == "kill":
            import signal  # the supervisor of every task would pay for it at its start

            os.kill(os.getpid(), signal.SIGKILL)
        elif self.action == "raise":
            raise FaultInjected(name)
        else:
            time.sleep(float(self.action.removeprefix("delay=")))

    def _first_of_all_processes(self, name: str) -> bool:
        if self.once_directory is None:
            return True
        marker = f"{self.once_directory}/{name}:{self.action}:{self.nth}"
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        return True


def _append(path: str, line: str) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def _parse(text: str, once_directory: str | None) -> dict[str, list[_Armed]]:
    armed: dict[str, list[_Armed]] = {}
    for entry in filter(None, text.split(",")):
        name, _, rest = entry.strip().partition(":")
        action, _, nth = rest.partition(":")
        if action not in ("kill", "raise") and not action.startswith("delay="):
            raise ValueError(f"SHOAL_FAULTS: {entry!r} is not POINT:kill|raise|delay=SECONDS[:NTH]")
        armed.setdefault(name, []).append(_Armed(action, int(nth or 1), once_directory))
    return armed


_trace = os.environ.get("SHOAL_FAULTS_TRACE")
_armed = _parse(os.environ.get("SHOAL_FAULTS", ""), os.environ.get("SHOAL_FAULTS_ONCE"))
