"""What a decision is made from: nodes, queues, and jobs with their tasks, as rows.

Amounts are whole numbers by resource name, in any unit (thousandths of a core, bytes); GPUs are counted
apart, because a task is on particular ones. Times are seconds on any clock, the same for all.
"""

from __future__ import annotations

import math

from shoal.objects.job import Toleration
from shoal.objects.meta import Part, Stamp
from shoal.objects.node import Taint

__all__ = [
    "Budget",
    "Cluster",
    "Job",
    "Node",
    "Queue",
    "Role",
    "Rules",
    "Task",
    "UserUsage",
]


class Node(Part, frozen=True, kw_only=True):
    """One machine."""

    name: str
    amounts: dict[str, int] = {}
    gpus: int = 0
    labels: dict[str, str] = {}
    """Levels of the topology are labels too: `Cluster.levels` names them."""
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    """False: it does not answer. Nothing starts there; what it holds stays held."""
    schedulable: bool = True


class Budget(Part, frozen=True, kw_only=True):
    """Hours of a resource that a queue may use in all."""

    name: str
    resource: str
    """A resource, `gpu`, or `node`."""
    hours: float
    spent: float = 0.0
    """Hours, up to now."""


class Queue(Part, frozen=True, kw_only=True):
    """A queue; amounts by resource, GPUs as `gpu`. What a resource is not named in is 0 for nominal and
    guaranteed, and no bound for the others."""

    name: str
    parent: str = ""
    """Empty: topmost."""
    nominal: dict[str, float] = {}
    guaranteed: dict[str, float] = {}
    limit: dict[str, float] = {}
    borrowing: dict[str, float] = {}
    lending: dict[str, float] = {}
    weight: float = 1.0
    priority: int = 0
    """Of siblings that borrow, the higher come first."""
    fenced: bool = False
    """Who is inside takes nothing back from outside."""
    jobs: int | None = None
    """So many may hold something at once."""
    namespaces: tuple[str, ...] = ()
    """Which may use it; empty: all."""
    highest: dict[str, int] = {}
    """Namespace (or `*`) to the highest priority that its jobs may have here."""
    user_limit: dict[str, float] = {}
    """What each user may hold here at most."""
    user_jobs: int | None = None
    minimum_seconds: float = 0.0
    """Who has held something here for less is not taken for other queues."""
    budgets: tuple[Budget, ...] = ()


class Role(Part, frozen=True, kw_only=True):
    """Equal tasks of a job: at least `minimum`, at most `maximum` of them."""

    name: str = "worker"
    minimum: int = 1
    maximum: int = 1
    amounts: dict[str, int] = {}
    gpus: int = 0
    share: int = 0
    """Thousandths of one GPU, instead of whole ones."""
    selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    avoid: tuple[str, ...] = ()
    """Nodes that it does not start on."""
    required: str = ""
    """All tasks of the role in one domain of this level of the topology."""
    preferred: str = ""


class Task(Part, frozen=True, kw_only=True):
    """A task that is there, or is to be there: its slot is in use until it is gone."""

    role: str = "worker"
    index: int = 0
    node: str
    gpus: tuple[int, ...] = ()
    """Positions of the GPUs of its node that it is on."""
    stopping: bool = False
    """It was told to go, and is not gone."""
    preemptible: bool = True


class Job(Part, frozen=True, kw_only=True):
    """A job that waits, or holds something."""

    name: str
    """Unique."""
    namespace: str = "default"
    queue: str = "default"
    user: str = ""
    priority: int = 0
    created: Stamp = 0.0
    waits_since: Stamp | None = None
    """None: since it was created. Later where it had a turn, and gave way to others."""
    roles: tuple[Role, ...] = (Role(),)
    minimum: int = 0
    """So many tasks of all roles together, besides each role's own minimum."""
    tasks: tuple[Task, ...] = ()
    since: Stamp = 0.0
    """When it began to hold what it holds."""
    below_since: Stamp | None = None
    """Since when it holds something, and less than its minimum."""
    preemptible: bool = True
    movable: bool = True
    """It may be stopped for others where it goes on elsewhere."""
    counts: bool = True
    """As a job of its queue and its user; False: it is part of one that does."""
    wall_seconds: float | None = None
    """It is ended so long after its start; None: nobody knows how long it runs."""
    grace_seconds: float = 0.0
    """Between the signal and the end."""
    required: str = ""
    """All tasks in one domain of this level."""
    preferred: str = ""
    spread: str = ""
    """Evenly over the domains of this level."""
    shared: dict[str, int] = {}
    """What it takes of the cluster's shared amounts: licences."""
    suspended: bool = False
    promised: Stamp | None = None
    """The date at which it starts at the latest, as it was told. Whoever lets it ask for more than it
    did then takes this away."""
    resized: Stamp | None = None
    """When it last grew, or was shrunk for others; None: not since it started."""
    place: tuple[Task, ...] = ()
    """Where it starts then, as it was told with that date; nothing else is put there that would still be
    there by then. Empty: that was not looked at."""
    reserved: tuple[Task, ...] = ()
    """Slots that are kept for it until those who are told to go are gone."""
    speeds: tuple[float, ...] = ()
    """Progress per second with 1, 2, ... tasks of its elastic role, in any unit; empty: unknown."""
    work: float | None = None
    """Progress in all, as its user declared it, in the same unit."""
    done: float = 0.0
    """Progress up to now."""
    restart_seconds: float = 0.0
    """What a change of its size costs it."""
    service_seconds: float = 0.0
    """Seconds of GPUs that it has had, of all of them added up; of tasks, where it asks for no GPU."""
    served_at: Stamp | None = None
    """Up to when they are counted; None: up to now."""
    service_rate: float = 0.0
    """So many more each second since then."""

    @property
    def waiting_since(self) -> Stamp:
        """What its place among equals goes by."""
        return self.created if self.waits_since is None else self.waits_since

    def service(self, now: Stamp) -> float:
        """Seconds of GPUs, or of tasks, up to now."""
        since = 0.0 if self.served_at is None else max(0.0, now - self.served_at)
        return self.service_seconds + self.service_rate * since

    @property
    def longest_seconds(self) -> float:
        """After which its capacity is back, wall time and grace; infinity where nobody knows."""
        return math.inf if self.wall_seconds is None else self.wall_seconds + self.grace_seconds

    @property
    def present(self) -> tuple[Task, ...]:
        """What is there and is to stay."""
        return tuple(task for task in self.tasks if not task.stopping)


class UserUsage(Part, frozen=True, kw_only=True):
    """Decayed usage of one user in one queue up to `at`; what its jobs hold now counts from there on."""

    queue: str
    user: str
    seconds: float
    """GPU seconds, or task seconds of jobs without GPUs."""
    at: Stamp


class Cluster(Part, frozen=True, kw_only=True):
    """Everything that a decision depends on, but for the rules and the time."""

    version: int = 1
    nodes: tuple[Node, ...] = ()
    levels: tuple[str, ...] = ()
    """Labels that make the topology, the widest first: block, rack. The node itself follows them."""
    queues: tuple[Queue, ...] = ()
    jobs: tuple[Job, ...] = ()
    shared: dict[str, int] = {}
    """Amounts that belong to no node: licences."""
    usage: tuple[UserUsage, ...] = ()
    """Users that are not named have no history."""
    acted: Stamp | None = None
    """When a plan last started, stopped or changed something; None: when the last job began."""


class Rules(Part, frozen=True, kw_only=True):
    """How to decide."""

    beyond_nominal: bool = True
    """Queues that are behind may borrow by force."""
    starving_seconds: float = 600.0
    """Who has waited so long has what it asks for kept aside as it comes free."""
    stale_seconds: float = 60.0
    """A job below its minimum for so long, with no way back to it, gives back what it holds."""
    minimum_run_seconds: float = 0.0
    """Jobs of unknown length take turns of so long, where others starve; 0: they do not."""
    notice_seconds: float = 30.0
    """Who is to have a place by then is looked after now: those whose wall time ends until then count as
    leaving, and surplus is asked back."""
    consolidate: bool = True
    settling_seconds: float = 60.0
    """Who has begun to hold what it holds less than so long ago is not moved: each move costs a
    restart."""
    depth: int = 5000
    """So many waiting jobs get a place in the plan of dates."""
    promises: int = 16
    """So many of them, the first, are promised their dates, with places on nodes; for the others there
    is an estimate. Where all tasks are alike everybody is promised one."""
    resolution_seconds: float = 0.0
    """Steps of the grid of dates near now."""
    policy: str = "shoal"
    """Who decides, by name. All but `shoal` divide equal slots, and know of no queue but its limits."""
    half_life_seconds: float = 86_400.0
    """Of usage: so old, it counts half in the order of jobs. 0: what is held now counts alone."""
    edition: int = 1
    """Which core decides for the policy `shoal`: 1 is `schedule.cycle`, 2 is `schedule.core`."""
    horizon_seconds: float = 200.0
    """So long a decision about sizes is thought to hold, less where jobs are short: a restart has to pay
    within it."""
    patience_seconds: float = 30.0
    """`dragon`: who has waited so long takes workers from those that run."""
    quiet_seconds: float = 60.0
    """`dragon`: they grow once nothing has happened for so long."""
