"""Answers of the server other than objects: tasks, usage, explanations, its version.."""

from __future__ import annotations

from typing import Any

from shoal.cluster.base import Outcome, TaskPhase
from shoal.history.base import Entry
from shoal.objects.meta import Part, Stamp
from shoal.objects.node import Capacity
from shoal.objects.quantities import Bytes, CpuMillis


class TaskReport(Part, frozen=True, kw_only=True):
    """One task as its node knows it now; without its environment, which may hold secrets."""

    namespace: str
    job: str
    job_uid: str
    role: str
    index: int
    attempt: int
    incarnation: int
    name: str
    node: str
    phase: TaskPhase
    ready: bool = False
    """It runs, and its readiness probe, if it has one, succeeds."""
    started: Stamp = 0.0
    ended: Stamp = 0.0
    idle_since: Stamp = 0.0
    outcome: Outcome | None = None
    unenforced: tuple[str, ...] = ()
    """Isolations that its node could not give it."""
    cpu_seconds: float = 0.0
    """Processor time used since it started."""
    memory_bytes: int = 0
    peak_memory_bytes: int = 0
    gpu_ratio: float | None = None


class MetricPoint(Part, frozen=True, kw_only=True):
    """One value of a metric that a task reported, or a collector found."""

    name: str
    value: float | None
    """None: it was NaN or infinite."""
    step: int | None = None
    at: Stamp
    role: str = ""
    index: int = 0
    incarnation: int = 0
    order: int
    """Of arrival, over all jobs."""


class MetricPoints(Part, frozen=True, kw_only=True):
    """Metric points of the job with this uid; `more`: there may be others behind the last."""

    uid: str
    items: tuple[MetricPoint, ...] = ()
    more: bool = False


class NodeUsage(Part, frozen=True, kw_only=True):
    """One node: what it can hold, what its tasks ask for, what they use."""

    name: str
    ready: bool
    capacity: Capacity = Capacity()
    requested_cpu: CpuMillis = CpuMillis(0)
    requested_memory: Bytes = Bytes(0)
    held_gpus: int = 0
    tasks: int = 0
    cpu_seconds: float = 0.0
    memory_bytes: int = 0


class UsageReport(Part, frozen=True, kw_only=True):
    """Usage of nodes and tasks at the moment `at`. Two of them give rates: cores are the difference of
    `cpu_seconds` over that of `at`."""

    at: Stamp
    nodes: tuple[NodeUsage, ...] = ()
    tasks: tuple[TaskReport, ...] = ()
    unreachable_nodes: tuple[str, ...] = ()
    """Nodes that did not answer: of their tasks nothing is known."""


class Explanation(Part, frozen=True, kw_only=True):
    """Why an object is in the state it is in: the scheduler's own reason, with its numbers."""

    kind: str
    namespace: str
    name: str
    phase: str = ""
    code: str = ""
    """A CamelCase code; the plan's where the scheduler holds the job back."""
    message: str = ""
    """One sentence."""
    remedy: str = ""
    """What would change it; empty where nothing need."""
    evidence: dict[str, Any] = {}
    """The numbers behind it."""
    since: Stamp = 0.0
    starts: Stamp | None = None
    """When a job that waits starts at the latest, if all jobs keep to their stated wall times;
    absent where that is unknown."""
    ahead: tuple[str, ...] = ()
    """Waiting jobs that the last decision considered before this one (`namespace/name`), first first, at
    most twenty."""
    tasks: tuple[TaskReport, ...] = ()
    decisions: tuple[Entry, ...] = ()
    """The latest decisions about it, oldest first."""
    events: tuple[Entry, ...] = ()
    """The latest events, oldest first."""


class Readiness(Part, frozen=True, kw_only=True):
    """Whether each part of the server is up: part to `ok`, or to what is wrong."""

    ready: bool
    parts: dict[str, str] = {}
    warnings: tuple[str, ...] = ()
    """What is wrong and stops nothing, a sentence each."""
    failing: tuple[str, ...] = ()
    """What fails now and is tried again (objects, caches, threads), a sentence each."""


class VersionReport(Part, frozen=True, kw_only=True):
    """The server."""

    version: str
    api_version: str = ""
    python: str = ""
    pid: int = 0
    started: Stamp = 0.0
    home: str = ""


class Identity(Part, frozen=True, kw_only=True):
    """The caller as the server knows it."""

    name: str
    bindings: tuple[dict[str, str], ...] = ()
    """`namespace` (empty: the whole cluster) and `role`."""
    job: str = ""
    """`NAMESPACE/NAME` of the job that the token belongs to; then there are no roles."""


class UserReport(Part, frozen=True, kw_only=True):
    """A user with its role bindings."""

    name: str
    created: Stamp = 0.0
    bindings: tuple[dict[str, str], ...] = ()


class SecretReport(Part, frozen=True, kw_only=True):
    """A secret without its values, which the API never shows."""

    namespace: str
    name: str
    keys: tuple[str, ...] = ()
    """Of its values."""
    created: Stamp = 0.0
    updated: Stamp = 0.0
    """When a value was last set."""
    submitter: str = ""


class TokenReport(Part, frozen=True, kw_only=True):
    """A user's token; `token` is its text, in the answer to its creation alone."""

    id: str
    user: str
    description: str = ""
    created: Stamp = 0.0
    expires: Stamp = 0.0
    token: str = ""
