"""The one list of controllers: what each is made of, and on how many threads it runs.

The server, the control plane in virtual time (`shoal.testing.plane`) and tests build their controllers
from this list over a `ControllerContext`.

A controller outside this package is added without a change here: `$SHOAL_CONTROLLERS` names modules,
separated by commas, that hold a tuple `CONTROLLERS` of registrations (see docs/design/kinds.md).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from shoal.control.context import ControllerContext
from shoal.control.experiment import ExperimentController
from shoal.control.job.controller import JobController
from shoal.control.metric_collector import MetricCollector
from shoal.control.node import NodeController
from shoal.control.queue_usage import QueueController
from shoal.control.runner import Controller
from shoal.control.scheduling import SchedulingController
from shoal.objects.kinds import EXPERIMENT, JOB, TRIAL

PLUGINS = "SHOAL_CONTROLLERS"
"""The environment variable that names modules with further controllers."""


@dataclass(frozen=True)
class Registration:
    """One controller: its name, how it is made, and the number of its threads."""

    name: str
    make: Callable[[ControllerContext], Controller]
    threads: int = 1


def _metric_collector(context: ControllerContext) -> Controller:
    return MetricCollector(
        jobs=context.cache(JOB),
        experiments=context.cache(EXPERIMENT),
        trials=context.cache(TRIAL),
        feed=context.metrics,
        history=context.history,
        logs=context.logs,
        outputs=context.outputs,
        tasks=context.tasks,
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
    Registration(JobController.name, JobController, threads=4),
    Registration(SchedulingController.name, SchedulingController),
    Registration(NodeController.name, NodeController),
    Registration(QueueController.name, QueueController),
    Registration(ExperimentController.name, _experiment),
    Registration(MetricCollector.name, _metric_collector, threads=4),
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
