"""A task: one start of one replica of a role, as the controller asks for it and as its peers see it.

Shared by the cluster that runs it and the rendezvous that renders the addresses of its peers.
"""

from __future__ import annotations

from typing import Any, Literal

from shoal.objects.meta import Part
from shoal.objects.quantities import Bytes, CpuMillis

__all__ = [
    "RENDEZVOUS_FOLDER",
    "SECRETS_FOLDER",
    "Endpoint",
    "Placement",
    "Probe",
    "TaskBootstrap",
    "TaskKey",
    "TaskSpec",
    "Volume",
    "task_name",
]

RENDEZVOUS_FOLDER = "$(SHOAL_RENDEZVOUS)"
"""In the value of a variable: the folder that the cluster put the task's rendezvous files in."""
SECRETS_FOLDER = "secrets"
"""In the folder of rendezvous files: where the files of `TaskBootstrap.secret_files` are."""


class TaskKey(Part, frozen=True, kw_only=True):
    """Which task."""

    namespace: str
    name: str


class Placement(Part, frozen=True, kw_only=True):
    """Where a task is to run."""

    node: str
    devices: tuple[str, ...] = ()
    share: int = 0
    """Thousandths that it has of its one device; 0: whole devices."""

    @property
    def thousandths(self) -> int:
        """What it takes of each of its devices."""
        return self.share or 1000


class Volume(Part, frozen=True, kw_only=True):
    """Storage that a container mounts (clusters that run containers)."""

    name: str
    """Unique in its role."""
    mount_path: str
    """Absolute, in the container."""
    source: dict[str, Any] = {}
    """As the cluster spells it, such as `{"persistentVolumeClaim": {"claimName": "data"}}`."""
    read_only: bool = False
    """True: the container cannot write to it."""


class Probe(Part, frozen=True, kw_only=True):
    """How to find out whether a running task is ready: exactly one of `command`, `tcp` and `http`."""

    command: tuple[str, ...] = ()
    """Exits 0 when the task is ready; runs beside it, in its isolation."""
    tcp: str = ""
    """The name of a port that accepts connections."""
    http: str = ""
    """`NAME/PATH`: the port's name, and the path that answers 200 to 399."""
    period_seconds: float = 2.0
    """From the end of one try to the next."""
    timeout_seconds: float = 1.0
    """A try that takes longer has failed."""
    failures: int = 3
    """A task that was ready is so no more after this many failures in a row."""


class TaskSpec(Part, frozen=True, kw_only=True):
    """One task, complete but for what `TaskBootstrap` adds once its peers' endpoints are known."""

    namespace: str
    name: str
    job: str
    job_uid: str
    role: str
    index: int
    attempt: int
    incarnation: int
    placement: Placement
    command: tuple[str, ...]
    env: dict[str, str] = {}
    working_directory: str = ""
    cpu: CpuMillis = CpuMillis(0)
    cpu_limit: CpuMillis | None = None
    memory: Bytes | None = None
    ports: dict[str, int] = {}
    """Port name to the number asked for; 0 is any."""
    isolation: Literal["default", "strict"] = "default"
    image: str = ""
    """The container image; clusters of processes refuse it."""
    volumes: tuple[Volume, ...] = ()
    """Clusters of processes refuse them."""
    template: dict[str, Any] = {}
    """An opaque pod template, which the fields above come over; clusters of processes refuse it."""
    readiness: Probe | None = None
    """Absent: ready once it runs."""

    @property
    def key(self) -> TaskKey:
        """Namespace and name."""
        return TaskKey(namespace=self.namespace, name=self.name)


class Endpoint(Part, frozen=True, kw_only=True):
    """Where a task of a group can be reached by its peers."""

    role: str
    index: int
    task: str
    node: str
    host: str
    ports: dict[str, int] = {}


class TaskBootstrap(Part, frozen=True, kw_only=True):
    """What rendezvous adds to a task: environment (with the folder where `RENDEZVOUS_FOLDER` stands),
    files (relative path to text, placed in that folder, which `$SHOAL_RENDEZVOUS` names; what starts
    with `#!` can be run), and words that replace the command when not empty."""

    env: dict[str, str] = {}
    files: dict[str, str] = {}
    command: tuple[str, ...] = ()
    secret_env: dict[str, str] = {}
    """Variables that no ledger, description or log may hold, and"""
    secret_files: dict[str, str] = {}
    """such files (name to text), in `SECRETS_FOLDER`. They are gone with the task."""


def task_name(job: str, job_uid: str, role: str, index: int, incarnation: int) -> str:
    """The one name of one start of one index. At most 63 + 8 + 63 + 14 characters."""
    return f"{job}-{job_uid[:8]}-{role}-{index}-{incarnation}"
