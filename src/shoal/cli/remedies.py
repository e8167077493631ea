"""What a person can do about each reason: the last line of `shoal explain`.

The reasons are the scheduler's and the job controller's own codes; this only answers "and now?".
A code that is not listed here is shown without a remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["remedy"]

_ASK_LESS = "ask for less, for fewer tasks (shoal scale {target}), or end or suspend another job"

_BY_CODE = {
    "NoNodes": "start a node: shoal up",
    "NoMatchingNode": "change the role's nodeSelector or tolerations, or the nodes' labels and taints "
    "(shoal get nodes -o wide shows them)",
    "TooLarge": "no node is that large: ask for less per task, or start larger nodes (shoal up --help)",
    "WaitingForNode": "bring the nodes back: shoal get nodes shows them; shoal uncordon opens one, "
    "shoal lost gives one up",
    "PlacementRefused": "it is tried again by itself; shoal describe {target} shows what the node said",
    "InsufficientCpu": _ASK_LESS,
    "InsufficientMemory": _ASK_LESS,
    "InsufficientGpu": _ASK_LESS,
    "QueueMissing": "create the queue, or send the job to another: shoal get queues",
    "NamespaceNotAllowed": "use a queue that is for this namespace: shoal get queues -o wide",
    "PriorityTooHigh": "lower spec.priority, or use another queue",
    "QuotaExceeded": "wait for its other jobs to end, or raise its quota: shoal describe queue/{queue}",
    "Suspended": "shoal resume {target}",
    "Backoff": "it starts again by itself",
    "CommandNotFound": "check the command, and that PATH and the directory are the ones it needs",
    "OutOfMemory": "ask for more memory, or use less of it per task",
    "RestartLimit": "shoal logs {target} and shoal logs --previous {target} show what its tasks wrote",
    "TaskFailed": "shoal logs {target} shows what its tasks wrote",
    "IndicesFailed": "shoal logs {target} --rank INDEX shows what one of them wrote",
    "WallTimeExceeded": "give it more time (limits.wallTime), and save its state so that it can resume",
    "IdleTimeout": "shoal logs {target} shows where it stood still",
    "InfrastructureLimit": "shoal events {target} shows what failed; shoal get nodes which nodes answer",
}


def remedy(code: str, target: str, evidence: Mapping[str, Any]) -> str:
    """What would change it; empty where nothing is known or nothing needs to."""
    text = _BY_CODE.get(code, "")
    return text.replace("{target}", target).replace("{queue}", str(evidence.get("queue", "NAME")))
