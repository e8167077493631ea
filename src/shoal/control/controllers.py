"""The one list of controllers: what each is made of, and on how many threads it runs.

The server, the control plane in virtual time (`shoal.testing.plane`) and tests build their controllers
from this list over a `ControllerContext`, which makes one cache for each kind that a controller reads.

A controller outside this package is added without a change here: `$SHOAL_CONTROLLERS` names modules,
separated by commas, that hold a tuple `CONTROLLERS` of registrations (see docs/design/kinds.md).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from shoal.admission.admission import Admission
from shoal.clock import Clock
from shoal.cluster.base import Cluster
from shoal.control.cache import ObjectCache
from shoal.control.experiment import ExperimentController
from shoal.control.job.controller import EventRecorder, JobController, Rendezvous
from shoal.control.lease import Guard
from shoal.control.metric_collector import MetricCollector, MetricFeed, Outputs
from shoal.control.node import NodeController, NodeStates
from shoal.control.queue_usage import QueueController
from shoal.control.runner import Controller
from shoal.control.scheduling import DecisionRecorder, SchedulingController, WaitingOrder
from shoal.control.task_cache import TaskCache
from shoal.history.base import History, Logs
from shoal.objects.kinds import EXPERIMENT, JOB, NODE, QUEUE, SECRET, TRIAL, Kind
from shoal.schedule.plan import Policy
from shoal.schedule.record import Record
from shoal.store.base import SYSTEM, Store, allow_all

PLUGINS = "SHOAL_CONTROLLERS"
"""The environment variable that names modules with further controllers."""


class Recorder(EventRecorder, DecisionRecorder, Protocol):
    """Where controllers record events, attempts and decisions."""


@dataclass(kw_only=True)
class ControllerContext:
    """What controllers are made of. Each takes from it what it needs; caches are shared."""

    store: Store
    cluster: Cluster
    clock: Clock
    guard: Guard
    rendezvous: Rendezvous
    recorder: Recorder
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


@dataclass(frozen=True)
class Registration:
    """One controller: its name, how it is made, and the number of its threads."""

    name: str
    make: Callable[[ControllerContext], Controller]
    threads: int = 1


def _job(context: ControllerContext) -> Controller:
    return JobController(
        jobs=context.cache(JOB),
        nodes=context.cache(NODE),
        tasks=context.tasks,
        cluster=context.cluster,
        guard=context.guard,
        rendezvous=context.rendezvous,
        notebook=context.recorder,
    )


def _scheduling(context: ControllerContext) -> Controller:
    return SchedulingController(
        jobs=context.cache(JOB),
        queues=context.cache(QUEUE),
        nodes=context.cache(NODE),
        tasks=context.tasks,
        secrets=context.cache(SECRET),
        guard=context.guard,
        clock=context.clock,
        journal=context.recorder,
        policy=context.policy,
        levels=context.levels,
        record=context.record,
        order=context.order,
        report_nodes=context.node_states.unusable,
    )


def _node(context: ControllerContext) -> Controller:
    return NodeController(
        nodes=context.cache(NODE),
        states=context.node_states,
        guard=context.guard,
        recorder=context.recorder,
    )


def _queue(context: ControllerContext) -> Controller:
    return QueueController(
        queues=context.cache(QUEUE),
        jobs=context.cache(JOB),
        nodes=context.cache(NODE),
        tasks=context.tasks,
        guard=context.guard,
        policy=context.policy,
    )


def _metric_collector(context: ControllerContext) -> Controller:
    return MetricCollector(
        jobs=context.cache(JOB),
        experiments=context.cache(EXPERIMENT),
        trials=context.cache(TRIAL),
        feed=context.metrics,
        history=context.history,
        logs=context.logs,
        outputs=context.outputs,
    )


def _experiment(context: ControllerContext) -> Controller:
    return ExperimentController(
        experiments=context.cache(EXPERIMENT),
        trials=context.cache(TRIAL),
        jobs=context.cache(JOB),
        metrics=context.metrics,
        guard=context.guard,
        recorder=context.recorder,
        outputs=context.outputs,
    )


CONTROLLERS = (
    Registration(JobController.name, _job, threads=4),
    Registration(SchedulingController.name, _scheduling),
    Registration(NodeController.name, _node),
    Registration(QueueController.name, _queue),
    Registration(ExperimentController.name, _experiment),
    Registration(MetricCollector.name, _metric_collector),
)
"""The platform's own."""


def registrations(environment: Mapping[str, str] = os.environ) -> tuple[Registration, ...]:
    """The platform's own controllers, and those of the modules that the environment names.

    Raises:
        ImportError: there is no such module.
        AttributeError: a module holds no `CONTROLLERS`.
    """
    modules = filter(None, environment.get(PLUGINS, "").split(","))
    added = (each for name in modules for each in importlib.import_module(name).CONTROLLERS)
    return (*CONTROLLERS, *added)


def build(context: ControllerContext, *, without: Collection[str] = ()) -> list[tuple[Controller, int]]:
    """Every controller but those named, each with the number of its threads: what a `Runner` takes."""
    return [(each.make(context), each.threads) for each in registrations() if each.name not in without]
