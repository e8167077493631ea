"""What controllers are made of: each takes a `ControllerContext`, which makes one cache per kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Any, Protocol

from shoal.admission.admission import Admission
from shoal.clock import Clock
from shoal.cluster.base import Cluster, Task
from shoal.control.cache import ObjectCache
from shoal.control.lease import Guard
from shoal.control.metric_collector import MetricFeed, Outputs
from shoal.control.runner import Key
from shoal.control.task_cache import NodeStates, TaskCache
from shoal.history.base import History, Logs
from shoal.objects.job import Job
from shoal.objects.kinds import NODE, Kind
from shoal.objects.meta import Object, Stamp
from shoal.objects.task import Endpoint, TaskBootstrap, TaskSpec
from shoal.schedule.plan import Policy
from shoal.schedule.record import Record
from shoal.store.base import SYSTEM, Store, allow_all


class Rendezvous(Protocol):
    """The bootstraps of tasks, given the endpoints of every known task of the job. Pure."""

    def __call__(
        self,
        job: Job,
        attempt: int,
        specs: tuple[TaskSpec, ...],
        endpoints: tuple[Endpoint, ...],
    ) -> Mapping[str, TaskBootstrap]:
        """By task name."""
        ...


class EventRecorder(Protocol):
    """Where controllers record events, attempts and decisions; never waits, never fails the caller."""

    def event(
        self,
        obj: Object,
        reason: str,
        message: str,
        *,
        warning: bool,
        at: Stamp,
        jobs: tuple[str, ...] = (),
    ) -> None:
        """Something happened to the object; `jobs` are other jobs that the message names."""

    def attempt(self, job: Object, task: Task) -> None:
        """A task has ended; idempotent by the task's name."""

    def decision(self, obj: Object, key: str, code: str, message: str, evidence: dict[str, Any]) -> None:
        """A step for the object; the same key is recorded once."""


class WaitingOrder:
    """The order in which the last decision considered the jobs that ask for something. Thread-safe."""

    names: tuple[str, ...] = ()
    """`namespace/name`, with `#index` for an index of an array; replaced by each decision."""

    def before(self, job: Key) -> Iterator[Key]:
        """The jobs that were considered before this one, first first; none for a job that asked for
        nothing in the last decision."""
        name, names = "/".join(job), self.names
        seen = dict.fromkeys(each.partition("#")[0] for each in names)
        if name in seen:
            for other in takewhile(name.__ne__, seen):
                namespace, _, short = other.partition("/")
                yield namespace, short


@dataclass(kw_only=True)
class ControllerContext:
    """What controllers are made of. Each takes from it what it needs; caches are shared."""

    store: Store
    cluster: Cluster
    clock: Clock
    guard: Guard
    rendezvous: Rendezvous
    recorder: EventRecorder
    policy: Callable[[], Policy] = Policy
    """Asked for every decision."""
    levels: Callable[[], tuple[str, ...]] = tuple
    """Of the topology; asked for every decision."""
    record: Callable[[Record], None] | None = None
    """Takes every decision that is to be kept as a file."""
    history: History | None = None
    """Where tasks' metric points are; None: there are none."""
    logs: Logs | None = None
    """Of tasks; None: no metrics are collected from them."""
    outputs: Outputs = lambda namespace, job_uid: None
    """The output folder of a job."""
    order: WaitingOrder = field(default_factory=WaitingOrder)
    """Where the scheduler publishes the order of each decision."""
    _caches: dict[Kind, ObjectCache[Any]] = field(
        default_factory=dict[Kind, ObjectCache[Any]], init=False
    )

    def cache(self, kind: Kind) -> ObjectCache[Any]:  # Any: the caller names the kind
        """The cache of the objects of a kind; the same one for every caller."""
        if kind not in self._caches:
            self._caches[kind] = ObjectCache(
                self.store, kind, actor=SYSTEM, clock=self.clock, admission=self.admission
            )
        return self._caches[kind]

    def caches(self) -> tuple[ObjectCache[Any], ...]:
        """The caches that controllers were made of."""
        return tuple(self._caches.values())

    @cached_property
    def admission(self) -> Admission:
        """What the objects that controllers make pass: `cache(kind).create(obj, owner=...)` uses it."""
        return Admission(self.store, lambda: self.cache(NODE).all(), self.levels, authorise=allow_all)

    @cached_property
    def tasks(self) -> TaskCache:
        """The tasks of the cluster."""
        return TaskCache(self.cluster, clock=self.clock)

    @cached_property
    def metrics(self) -> MetricFeed:
        """The jobs that have new metric points, and the points."""
        return MetricFeed(self.history)

    @cached_property
    def node_states(self) -> NodeStates:
        """The nodes as the cluster reports them."""
        return NodeStates(self.cluster, self.tasks, clock=self.clock)
