"""What a person can do about how a job ended: the last line of `shoal explain`.

Reasons to wait come from the scheduler with their own remedy; these are the job controller's codes. One
that is not listed is shown without a remedy.
"""

from __future__ import annotations

__all__ = ["remedy"]

_BY_CODE = {
    "Suspended": "shoal resume {target}",
    "CommandNotFound": "check the command, and that PATH and the directory are the ones it needs",
    "OutOfMemory": "ask for more memory, or use less of it per task",
    "RestartLimit": "shoal logs {target} shows what its tasks wrote, with --previous the start before",
    "TaskFailed": "shoal logs {target} shows what its tasks wrote",
    "IndicesFailed": "shoal logs {target} --rank INDEX shows what one of them wrote",
    "WallTimeExceeded": "give it more time (limits.wallTime), and let it resume from what it saved",
    "NodeHoursExceeded": "give it more (limits.nodeHours), and let it resume from what it saved",
    "IdleTimeout": "shoal logs {target} shows where it stood still",
    "InfrastructureLimit": "shoal events {target} shows what failed; shoal get nodes which nodes answer",
}


def remedy(code: str, target: str) -> str:
    """What would change it; empty where nothing is known or nothing needs to."""
    return _BY_CODE.get(code, "").replace("{target}", target)
