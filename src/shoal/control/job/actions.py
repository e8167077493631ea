"""What a pass of the job controller may ask for. Data only; `controller` carries it out in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.cluster.base import StopReason, Task
from shoal.objects.task import TaskKey, TaskSpec


@dataclass(frozen=True)
class AddFinalizer:
    """Keep the Job until its tasks are gone; comes before anything is started."""


@dataclass(frozen=True)
class PatchStatus:
    """Write these status fields (wire names) as writer `job`, against the counter that was observed."""

    fields: dict[str, Any]


@dataclass(frozen=True)
class Note:
    """An event for people: a CamelCase reason and one sentence."""

    reason: str
    message: str
    warning: bool = False
    jobs: tuple[str, ...] = ()
    """Other jobs in the message, `namespace/name`: hidden from readers that may not know of them."""


@dataclass(frozen=True)
class Acknowledge:
    """The task's end is recorded in the status: write its history and let the node forget it."""

    task: Task


@dataclass(frozen=True)
class Stop:
    """End a task."""

    task: TaskKey
    grace_seconds: float
    reason: StopReason


@dataclass(frozen=True)
class Ensure:
    """These tasks are wanted: all or none of them, or each independently of the others."""

    group: tuple[TaskSpec, ...]
    together: bool = True


@dataclass(frozen=True)
class Bootstrap:
    """Their endpoints are known: render their rendezvous and have them run."""

    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class CleanUp:
    """Nothing of the job runs any more: remove its shared folders, with its outputs if asked."""

    outputs: bool


@dataclass(frozen=True)
class RemoveFinalizer:
    """All is cleaned up: let the store delete the Job."""


@dataclass(frozen=True)
class DeleteJob:
    """Its time to live after its end has passed."""


Action = (
    AddFinalizer
    | PatchStatus
    | Note
    | Acknowledge
    | Stop
    | Ensure
    | Bootstrap
    | CleanUp
    | RemoveFinalizer
    | DeleteJob
)


@dataclass(frozen=True)
class Decision:
    """Actions in a safe order, and in how many seconds to look again even if nothing happens."""

    actions: tuple[Action, ...] = ()
    again_seconds: float | None = None
