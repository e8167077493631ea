"""The one workload: a Job, its roles, and what is known of its run.

A Job declares roles; each replica of a role is a *task*, known by its role and index. People write
`JobSpec`. Three writers own the status: the scheduler writes `allocation` and `scheduling`, the job's
own reports `elastic`, the job controller everything else.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from shoal.objects.errors import Invalid
from shoal.objects.meta import Condition, Name, Object, Part, Stamp
from shoal.objects.nearest import did_you_mean
from shoal.objects.quantities import Bytes, CpuMillis, Seconds
from shoal.objects.task import Probe, Volume

__all__ = [
    "FINISHED",
    "PHASES",
    "PRIORITIES",
    "Allocation",
    "ArraySpec",
    "Dependency",
    "ElasticStatus",
    "Gang",
    "Job",
    "JobSpec",
    "JobStatus",
    "Limits",
    "NodeTime",
    "Phase",
    "Port",
    "Recovery",
    "Refusal",
    "Resources",
    "Restart",
    "RestartRule",
    "Role",
    "RoleStatus",
    "RoleTopology",
    "Scheduling",
    "SecretUse",
    "Slots",
    "Speed",
    "Success",
    "Toleration",
    "Topology",
    "WorldSize",
    "priority_number",
    "priority_problem",
    "restart_scope",
    "share_of",
    "unmet_dependencies",
]

PRIORITIES = {"production": 1000, "normal": 0, "experiment": -1000}

Phase = Literal["Pending", "Starting", "Running", "Suspended", "Succeeded", "Failed", "Cancelled"]
PHASES = ("Pending", "Starting", "Running", "Suspended", "Succeeded", "Failed", "Cancelled")
FINISHED = frozenset({"Succeeded", "Failed", "Cancelled"})
"""Phases that a job does not leave any more."""
Runtime = Literal["plain", "torchrun", "tensorflow", "mpi", "jax", "xgboost", "paddle", "elastic"]
Count = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


def priority_number(priority: int | str) -> int:
    """The number that a priority means: itself, or what its name stands for.

    Raises:
        Invalid: no priority has this name.
    """
    if isinstance(priority, int):
        return priority
    number = PRIORITIES.get(priority)
    if number is None:
        names = ", ".join(PRIORITIES)
        raise Invalid(f"{priority!r} is no priority", hint=f"write a number or one of {names}")
    return number


def priority_problem(priority: int | str) -> str:
    """What is wrong with a priority, in words; empty when nothing is."""
    if isinstance(priority, str):
        if priority in PRIORITIES:
            return ""
        names = ", ".join(PRIORITIES)
        hint = did_you_mean(priority, PRIORITIES) or f"; write a number or one of {names}"
        return f"{priority!r} is no priority{hint}"
    if -(2**31) <= priority < 2**31:
        return ""
    return f"a priority lies between {-(2**31)} and {2**31 - 1}"


class Resources(Part, frozen=True, kw_only=True):
    """What one task asks for."""

    cpu: CpuMillis = CpuMillis(1000)
    """Request: what admission counts, and the task's share when the processors are busy."""
    cpu_limit: CpuMillis | None = None
    """Hard quota of processor time; absent: none."""
    memory: Bytes | None = None
    """Hard limit, and what admission counts; absent: unlimited and counted as nothing."""
    gpu: Count = 0
    """Whole devices."""
    gpu_share: float | None = None
    """Instead of whole devices, a part of one, from 0.001 to below 1."""


def share_of(resources: Resources) -> int:
    """What a task asks for of one device, in thousandths; 0: whole ones, or none."""
    return 0 if resources.gpu_share is None else max(1, round(1000 * resources.gpu_share))


class Port(Part, frozen=True, kw_only=True):
    """A port that a task listens on, known to the others by its name."""

    name: Name
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    """The number to use where the task has an address of its own; 0: any. Tasks on one machine share
    an address: there another number is leased, and every task gets it; under `isolation: strict`, where
    the job has a network of its own, index 0 of the role has this number."""


class Toleration(Part, frozen=True, kw_only=True):
    """Lets tasks run on nodes that carry a matching taint."""

    key: str = ""
    """Empty: every key."""
    value: str | None = None
    """Absent: every value."""
    effect: Literal["NoSchedule", "NoExecute"] | None = None
    """Absent: both."""


class RestartRule(Part, frozen=True, kw_only=True):
    """What an exit code means. The first rule that matches decides."""

    exit_codes: tuple[Annotated[int, msgspec.Meta(ge=0, le=255)], ...]
    """The codes that the rule is about; 128 + signal for a task ended by one."""
    action: Literal["Restart", "Fail", "Ignore"]
    """Restart: start again and burn one of the budget. Fail: the job fails at once. Ignore: start
    again and burn none."""


class Restart(Part, frozen=True, kw_only=True):
    """When ended tasks are started again."""

    policy: Literal["OnFailure", "Never", "Always"] = "OnFailure"
    """Always: also after exit code 0, until the success rule or a limit ends the job."""
    limit: Count = 3
    """The user's failures that are forgiven: per job (a failed gang is one), per index for arrays."""
    infrastructure_limit: Count = 100
    """The same for node loss, lost supervisors, evictions, refused placements, and the deaths of an
    elastic job's coordinator."""
    scope: Literal["Gang", "Task"] | None = None
    """What starts again together. Absent: Task for arrays and the runtimes elastic, plain and tensorflow
    (the other tasks survive the loss of one); Gang for the fixed-size collectives."""
    backoff: Seconds = Seconds(1)
    """Wait before the first restart; doubles with each failure up to five minutes."""
    rules: tuple[RestartRule, ...] = ()
    """What single exit codes mean, whatever the policy."""


def restart_scope(spec: JobSpec) -> Literal["Gang", "Task"]:
    """What starts again together: what the spec says, else what suits its runtime."""
    if spec.restart.scope is not None:
        return spec.restart.scope
    alone = spec.array is not None or spec.runtime in ("elastic", "plain", "tensorflow")
    return "Task" if alone else "Gang"


class RoleTopology(Part, frozen=True, kw_only=True):
    """Where the tasks of one role are to be, seen from each other. A level of the topology is a label of
    nodes that the cluster declares (`shoal up --topology`), or `node`."""

    required: str = ""
    """All of them within one domain of this level, or the job waits."""
    preferred: str = ""
    """The same, where that is possible."""


class Topology(Part, frozen=True, kw_only=True):
    """Where the tasks of a job are to be, seen from each other. A level of the topology is a label of
    nodes that the cluster declares (`shoal up --topology`), or `node`."""

    required: str = ""
    """All tasks within one domain of this level, or the job waits."""
    preferred: str = ""
    """The same, where that is possible."""
    spread: str = ""
    """Evenly over the domains of this level."""


class SecretUse(Part, frozen=True, kw_only=True):
    """One value of a secret, given to the tasks of a role as a variable or as a file."""

    name: Name
    """The secret, in the namespace of the job."""
    key: str = "value"
    """Which of its values."""
    env: str = ""
    """The environment variable that holds the value."""
    file: str = ""
    """The name of the file in `$SHOAL_SECRETS`, readable by the task's user alone, that holds it."""


class Role(Part, frozen=True, kw_only=True):
    """Tasks that are alike."""

    name: Name = "worker"
    replicas: Positive = 1
    """At most this many tasks."""
    min_replicas: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Present: elastic, the role may run with as few as this."""
    command: tuple[str, ...] = ()
    """The program and its first arguments."""
    args: tuple[str, ...] = ()
    """Appended to `command`."""
    env: dict[str, str] = {}
    """Environment variables. Names that begin with `SHOAL_` are the platform's."""
    secrets: tuple[SecretUse, ...] = ()
    """Values that are not written here: the job waits until they exist, and each start of a task takes
    what they are then."""
    working_directory: str = ""
    """Absolute; empty: the task's scratch folder."""
    image: str = ""
    """A container image (needs a cluster that runs containers)."""
    template: dict[str, Any] = {}
    """An opaque pod template (Kubernetes only)."""
    ports: tuple[Port, ...] = ()
    """Ports that each task listens on."""
    readiness: Probe | None = None
    """How to find out whether a running task is ready; absent: it is once it runs."""
    volumes: tuple[Volume, ...] = ()
    """Storage that a container mounts (needs a cluster that runs containers)."""
    resources: Resources = Resources()
    node_selector: dict[str, str] = {}
    """Labels that a node must carry."""
    tolerations: tuple[Toleration, ...] = ()
    """Which taints of nodes do not keep the tasks away."""
    topology: RoleTopology | None = None
    restart_rules: tuple[RestartRule, ...] = ()
    """Tried before the job's own rules for this role's tasks."""


class Gang(Part, frozen=True, kw_only=True):
    """How many tasks must be placed together before any starts."""

    min: Positive | None = None
    """Absent: all (for elastic roles, their minimum). Counts the tasks of all roles."""


class ArraySpec(Part, frozen=True, kw_only=True):
    """Run the one role once per index; indices are scheduled, retried and counted apart."""

    indices: str
    """Such as `0-99` or `0-4,7`."""
    parallelism: Positive | None = None
    """How many at once; absent: as many as fit."""


class Limits(Part, frozen=True, kw_only=True):
    """Ends of a job's patience."""

    wall_time: Seconds | None = None
    """From the first start of the first task; the job fails when it has passed."""
    node_hours: float | None = None
    """The job fails when its tasks have been on nodes for so long: four nodes for an hour are four. A
    node counts once, however many of its tasks are there, and for as long as any is."""
    idle_timeout: Seconds | None = None
    """The job fails when all of its tasks have used next to no CPU for this long."""


class Speed(Part, frozen=True, kw_only=True):
    """The speed of an elastic job with so many tasks, as far as it is known. It sizes the job
    where others want the same machines, and is not given tasks that make it slower."""

    curve: tuple[float, ...] = ()
    """Progress per second with 1, 2, 3 ... tasks of the elastic role, in any unit. Absent: learned."""
    work: float | None = None
    """Progress until it ends, in the same unit. Absent: unknown."""
    application: str = ""
    """Jobs with the same one get on alike: what is learned of one is used for the others."""
    restart: Seconds | None = None
    """What a change of its size costs. Absent: the mean of what changes have cost it so far."""


class Success(Part, frozen=True, kw_only=True):
    """Which tasks decide that the job has succeeded."""

    role: str = ""
    """Empty: all roles."""
    policy: Literal["All", "First", "Any"] = "All"
    """All tasks of the role exited 0; its index 0 did; any did."""


class Dependency(Part, frozen=True, kw_only=True):
    """A job that has to end before this one starts."""

    job: Name
    """Its name; it is in the namespace of this job."""
    on: Literal["success", "failure", "end"] = "success"
    """How it has to end. success: as Succeeded. failure: as Failed or Cancelled. end: in any way, its
    deletion included."""


class JobSpec(Part, frozen=True, kw_only=True):
    """What people ask for."""

    roles: tuple[Role, ...]
    """Groups of tasks that are alike; at least one."""
    runtime: Runtime = "plain"
    """How the tasks find each other: the framework's own environment variables and files."""
    queue: Name = "default"
    """Where the job waits."""
    priority: int | str = 0
    """A number, or `production`, `normal`, `experiment`."""
    after: tuple[Dependency, ...] = ()
    """Jobs that have to end first. It is Pending until each has ended as asked, and fails once one
    cannot any more."""
    user: str = ""
    """The user that the job counts for where queues count by user; empty: its submitter."""
    preemptible: bool = True
    """False: nothing is taken from it once it runs. It then never has more than its queue's own."""
    gang: Gang = Gang()
    topology: Topology | None = None
    speed: Speed | None = None
    array: ArraySpec | None = None
    limits: Limits = Limits()
    restart: Restart = Restart()
    success: Success = Success()
    grace_period: Seconds = Seconds(30)
    """Between SIGTERM and SIGKILL."""
    clean_up: Literal["Running", "All", "None"] = "Running"
    """Once the outcome is decided: stop what still runs; also delete the output folder; or let the
    rest end by itself."""
    ttl_after_finished: Seconds | None = None
    """The Job is deleted this long after it finished; absent: kept."""
    suspend: bool = False
    """True: its tasks are stopped and nothing starts until it is false again."""
    cancelled: bool = False
    """True: its tasks are stopped and the job ends as Cancelled. Cannot be taken back."""
    isolation: Literal["default", "strict"] = "default"
    """strict: own network and every isolation on, or the job is refused."""


class Slots(Part, frozen=True, kw_only=True):
    """Neighbouring indices of a role on one node."""

    role: str
    indices: str
    """Such as `0-3`."""
    node: str
    devices: tuple[str, ...] = ()
    """Device ids, as many per task as it asks for, in the order of the indices."""


class Allocation(Part, frozen=True, kw_only=True):
    """Where the job may run now. Written by the scheduler alone."""

    id: int = 0
    """Rises with each change of slots."""
    slots: tuple[Slots, ...] = ()
    reason: str = ""
    """The code of the plan's last step for this job: Started, Grown, Shrunk, Preempted ..."""
    beneficiaries: tuple[str, ...] = ()
    """Jobs (`namespace/name`) for which the last change took slots; at most 20."""
    changed: Stamp = 0.0
    since: Stamp = 0.0
    """Since when it holds something without a break; 0: it holds nothing."""
    served: float = 0.0
    """Seconds of GPUs that it had until `changed`; of tasks, where it asks for no GPU."""


class Scheduling(Part, frozen=True, kw_only=True):
    """Why the job waits, or what is reserved for it. Written by the scheduler alone."""

    code: str = ""
    """Empty while nothing holds the job back."""
    message: str = ""
    evidence: dict[str, Any] = {}
    """The numbers behind the code."""
    since: Stamp = 0.0
    reserved: tuple[Slots, ...] = ()
    promised: Stamp | None = None
    """When the job starts at the latest, if everybody keeps to the wall times that they stated."""
    place: tuple[Slots, ...] = ()
    """Where it starts then: jobs that would still be there are moved."""


class RoleStatus(Part, frozen=True, kw_only=True):
    """What became of one role's tasks. Per-index facts are ranges (`shoal.objects.ranges`)."""

    name: str
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    incarnations: str = ""
    """Index to the number of starts it has been given, such as `0-99=1,100=2`."""
    outcomes: str = ""
    """Index to its final outcome, `Succeeded` or `Failed`; absent while undecided."""
    exit_codes: str = ""
    """Index to the exit code of its last end."""
    failures: str = ""
    """Index to the user's failures counted against it (arrays)."""
    nodes: str = ""
    """Index to the node that its current incarnation was given to: written before that start, so that
    a node that stops answering is known to hold it."""
    crashes: str = ""
    """Index to its failures in a row, without progress between them (tasks that restart one by one)."""
    retry_after: str = ""
    """Index to when it may start again: the backoff of one task does not hold back another."""


class NodeTime(Part, frozen=True, kw_only=True):
    """For how long tasks of a job have been on nodes: before `since`, and on how many since then."""

    node_seconds: float = 0.0
    nodes: int = 0
    since: Stamp = 0.0


class Refusal(Part, frozen=True, kw_only=True):
    """A placement that a node refused; the scheduler takes it back. Written by the job controller."""

    allocation: int
    """The id of the allocation that was refused."""
    node: str
    reason: str
    message: str = ""
    at: Stamp = 0.0


class WorldSize(Part, frozen=True, kw_only=True):
    """From `at` on there were so many members."""

    at: Stamp
    size: int


class Recovery(Part, frozen=True, kw_only=True):
    """One change of the members that training had to wait for."""

    at: Stamp
    epoch: int = 0
    """Of the view that ended it."""
    how: str = ""
    """What the survivors did: `nothing`, `state`, `buckets`, `rerun`."""
    seconds: float = 0.0
    """From the loss to the first survivor's next step."""
    lost_steps: int = 0
    world: int = 0
    """Members afterwards."""


class ElasticStatus(Part, frozen=True, kw_only=True):
    """What an elastic job says of itself, through its coordinator. Everything of it is in history."""

    attempt: int = 0
    """Of the coordinator that reported last."""
    state: str = ""
    """Such as `running`, `paused`, `failed`."""
    message: str = ""
    world: int = 0
    """Members of the view."""
    step: int = 0
    """The last committed step."""
    goodput: float | None = None
    """Share of the time that went into steps that counted, 0 to 1."""
    step_seconds: float | None = None
    recoveries: int = 0
    """How many there were."""
    recovery_seconds: float = 0.0
    """All of them together."""
    lost_steps: int = 0
    last_recoveries: tuple[Recovery, ...] = ()
    """The newest few, oldest first."""
    sizes: tuple[WorldSize, ...] = ()
    """The newest changes of the number of members, oldest first."""
    reported: Stamp = 0.0


class JobStatus(Part, frozen=True, kw_only=True):
    """What is observed. Every field but `allocation`, `scheduling` and `elastic` is the job
    controller's."""

    phase: Phase = "Pending"
    reason: str = ""
    """Why the job is in this phase, as a CamelCase code."""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    attempt: int = 0
    """Counts gang starts; 0 before the first."""
    failures: int = 0
    """The user's failures counted against `restart.limit`."""
    infrastructure_failures: int = 0
    restarts: int = 0
    """Starts after the first: of the gang, or of single tasks where they restart one by one."""
    roles: tuple[RoleStatus, ...] = ()
    exit_code: int | None = None
    """Of the task that decided the outcome: 0 to 255, 128 + signal."""
    decided_by: str = ""
    """That task's name."""
    refusal: Refusal | None = None
    started: Stamp = 0.0
    """First start of the first task."""
    finished: Stamp = 0.0
    restart_after: Stamp = 0.0
    """Nothing starts before this; set by backoff."""
    dependencies_met: tuple[Name, ...] = ()
    """Jobs of `spec.after` that ended as asked; what becomes of them later changes nothing."""
    eligible: Stamp = 0.0
    """When the last of them did: from then on the scheduler considers the job."""
    node_time: NodeTime = NodeTime()
    """What counts against `limits.nodeHours`."""
    observed_generation: int = 0
    allocation: Allocation = Allocation()
    scheduling: Scheduling = Scheduling()
    elastic: ElasticStatus | None = None
    """Absent until an elastic job has reported."""
    writers: dict[str, int] = {}
    """Each writer's own counter, tested by `patch_status`. Kept by the store."""


def unmet_dependencies(job: Job) -> tuple[Dependency, ...]:
    """What of `spec.after` is not met yet. While anything is, the scheduler does not see the job."""
    if not job.spec.after or job.status.eligible:
        return ()
    met = frozenset(job.status.dependencies_met)
    return tuple(each for each in job.spec.after if each.job not in met)


class Job(Object, frozen=True, kw_only=True):
    """A workload: roles of tasks, in a queue."""

    spec: JobSpec
    status: JobStatus = JobStatus()
    kind: str = "Job"

    @property
    def user(self) -> str:
        """The user that it counts for."""
        return self.spec.user or self.metadata.submitter
