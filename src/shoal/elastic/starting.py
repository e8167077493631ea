"""A process finds the job that it was started for, and is watched from then on."""

from __future__ import annotations

import os
import time
from pathlib import Path

from shoal.elastic import embedded, environment
from shoal.elastic.detect.guardian import Guardian
from shoal.elastic.errors import ElasticError, Stopped
from shoal.elastic.membership import Membership
from shoal.elastic.presence import say

__all__ = ["checkpoints_in", "guard", "place"]

_PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.05


def place() -> environment.Place | None:
    """Where this process is to take part; None: it was started by hand, and is alone.

    Raises:
        ElasticError: the surroundings contradict each other.
    """
    return environment.find(os.environ) or embedded.under_torchrun(os.environ)


def checkpoints_in(given: str | Path | None) -> Path | None:
    """The folder for checkpoints: of a task of the platform one in `$SHOAL_OUTPUT`, unless the script
    gives an absolute one; elsewhere what the script gives, if anything."""
    output = os.environ.get("SHOAL_OUTPUT") if os.environ.get("SHOAL_RUNTIME") == "elastic" else None
    if output:
        return Path(output) / (given or "checkpoints")
    return Path(given) if given is not None else None


def guard(
    found: environment.Place, membership: Membership, max_stall_seconds: float
) -> tuple[Guardian, str]:
    """Start this process's sidecar, once the coordinator has shown up; and the job's key.

    Raises:
        ElasticError: it has not shown up.
        Stopped: the job has failed already.
        SystemExit: there is nothing more to do.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (contact := found.contact()) is None:
        if time.monotonic() > deadline:
            raise ElasticError("the job's coordinator has not shown up for a minute: see its log")
        time.sleep(_LOOK_SECONDS)
    if contact.ended and contact.failed:
        raise Stopped(contact.ended)
    if contact.ended:
        say(f"nothing to do: {contact.ended}")
        raise SystemExit(0)

    def find() -> str | None:
        now = found.contact()
        return now.address or None if now is not None else None

    guardian = Guardian(
        name=membership.name, key=contact.key, find=find, max_stall_seconds=max_stall_seconds,
        address_file=found.file,
    )  # fmt: skip
    guardian.training(False)
    membership.on_joined = guardian.joined
    membership.max_stall_seconds = max_stall_seconds
    return guardian, contact.key
