"""What the scheduler sees: nodes, queues, jobs and what they hold, as rows that can be kept in a file.

Rows are made once per change of their object and shared between snapshots, so ten thousand waiting
jobs cost nothing to look at again. Jobs that ask for the same thing share one *form*: what is found
out about one of them holds for all.
"""

from __future__ import annotations

from typing import Any

from shoal.objects.job import Slots, Toleration
from shoal.objects.meta import Part, Stamp
from shoal.objects.node import Taint
from shoal.schedule.cycle.rows import Queue, UserUsage

__all__ = [
    "LONGEST_AVOIDANCE_SECONDS",
    "VERSION",
    "Form",
    "Hold",
    "JobRow",
    "NodeRow",
    "RoleForm",
    "Shape",
    "Snapshot",
]

VERSION = 1
"""Of the rows: one that was written by another version is not read."""

LONGEST_AVOIDANCE_SECONDS = 60.0
"""How long a job stays away from a node that refused it, at most."""


class NodeRow(Part, frozen=True, kw_only=True):
    """A node: capacity in thousandths of a core, bytes, and device ids."""

    name: str
    cpu: int = 0
    memory: int = 0
    gpus: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    """False: it does not answer. Nothing starts there, and what it holds stays held."""
    schedulable: bool = True
    lost: bool = False
    """A person says that it is gone: what it holds is taken back."""


class Shape(Part, frozen=True, kw_only=True):
    """What one task needs of its node."""

    cpu: int = 0
    memory: int = 0
    gpu: int = 0
    """Whole devices."""
    share: int = 0
    """Thousandths of one device, instead of whole ones."""
    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


class RoleForm(Part, frozen=True, kw_only=True):
    """A role: tasks of one shape, the indices it may have, and with how few it may run."""

    name: str
    shape: Shape
    indices: str
    minimum: int
    elastic: bool = False
    """It may end with fewer tasks than it may have."""
    required: str = ""
    """All of its tasks in one domain of this level of the topology."""
    preferred: str = ""


class Form(Part, frozen=True, kw_only=True):
    """What a job asks for, without its name, queue and priority."""

    roles: tuple[RoleForm, ...]
    minimum: int
    """So many tasks of all roles together, before any starts."""
    array: bool = False
    """Indices start one by one as they fit, the lowest first."""
    parallelism: int | None = None
    """At most so many indices of an array at once."""
    whole: bool = False
    """Its tasks start again together, and slots are kept until the whole job has ended."""
    required: str = ""
    """All of its tasks in one domain of this level of the topology."""
    preferred: str = ""
    spread: str = ""
    """Evenly over the domains of this level."""
    movable: bool = False
    """It loses nothing by going on elsewhere."""


class Hold(Part, frozen=True, kw_only=True):
    """One index on one node, and what it takes there."""

    role: str
    index: int
    node: str
    devices: tuple[str, ...] = ()
    cpu: int = 0
    memory: int = 0
    gpu: int = 0
    share: int = 0
    """Thousandths that it has of its one device; 0: whole devices."""
    slot: bool = False
    """The job's allocation names it."""
    live: bool = False
    """A task is there that has not ended."""
    claimed: bool = False
    """The job controller has given it to the node; a task may appear."""


class JobRow(Part, frozen=True, kw_only=True):
    """A job that waits, or holds something, or has a reason to wait written in its status."""

    uid: str
    namespace: str
    name: str
    generation: int = 0
    queue: str = "default"
    priority: int = 0
    user: str = ""
    created: Stamp = 0.0
    since: Stamp = 0.0
    """Since when it holds something without a break."""
    waits_since: Stamp | None = None
    """Later than it was created where it had its turn."""
    wall_seconds: float | None = None
    """Counted from `since`: after that it is ended."""
    grace_seconds: float = 0.0
    preemptible: bool = True
    speeds: tuple[float, ...] = ()
    """Progress per second with 1, 2, ... tasks of its elastic role; empty: unknown."""
    work: float | None = None
    """Progress in all, as its user declared it."""
    progress: float = 0.0
    """Up to now."""
    restart_seconds: float = 0.0
    """What a change of its size costs it."""
    served: float = 0.0
    """Seconds of GPUs (of tasks, where it asks for none) that it had until `changed`, and"""
    service_rate: float = 0.0
    """so many more each second since."""
    form: int = 0
    """Position in `Snapshot.forms`."""
    ending: str = ""
    """Why it gives everything back: Finished, Suspended, Cancelled or Deleted; empty: it may run."""
    allocation: int = 0
    changed: Stamp = 0.0
    """When its slots last changed, and"""
    reason: str = ""
    """why: the code that its status shows."""
    code: str = ""
    """The reason to wait that its status shows now."""
    evidence: dict[str, Any] = {}
    reserved: tuple[Slots, ...] = ()
    """What is kept for it, as its status shows now."""
    promised: Stamp | None = None
    """When it starts at the latest, as its status shows now."""
    place: tuple[Slots, ...] = ()
    """Where it starts then, as its status shows now."""
    holds: tuple[Hold, ...] = ()
    done: tuple[tuple[str, str], ...] = ()
    """Role to the indices that have their outcome, as ranges."""
    refused: bool = False
    """The current allocation was refused by `avoid`."""
    avoid: str = ""
    """A node that refused it lately."""
    avoid_until: Stamp = 0.0
    avoid_reason: str = ""
    """The code of that refusal, and"""
    avoid_message: str = ""
    """its sentence."""

    @property
    def order(self) -> tuple[int, float, str, str]:
        """Sorts jobs as they are served: priority, then first come."""
        return (-self.priority, self.created, self.namespace, self.name)


class Snapshot(Part, frozen=True, kw_only=True):
    """Everything that a decision depends on, but for the policy and the time."""

    version: int = VERSION
    nodes: tuple[NodeRow, ...] = ()
    levels: tuple[str, ...] = ()
    """Labels that make the topology, the widest first."""
    queues: tuple[Queue, ...] = ()
    forms: tuple[Form, ...] = ()
    jobs: tuple[JobRow, ...] = ()
    """In the order of `JobRow.order`."""
    strangers: tuple[Hold, ...] = ()
    """Tasks that run though their job is not known."""
    usage: tuple[UserUsage, ...] = ()
    acted: Stamp = 0.0
    """When slots of a job that was to run last changed, those of jobs that are gone by now too."""
