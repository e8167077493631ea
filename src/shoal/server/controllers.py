"""The controllers of a server, with their caches, over one store and one cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from shoal import rendezvous
from shoal.clock import Clock
from shoal.cluster.base import Cluster
from shoal.control.cache import ObjectCache
from shoal.control.job.controller import JobController
from shoal.control.lease import Guard
from shoal.control.node import NodeController, NodeStates
from shoal.control.queue import QueueController
from shoal.control.runner import Runner
from shoal.control.scheduling import SchedulingController
from shoal.control.task_cache import TaskCache
from shoal.objects.job import Job
from shoal.objects.kinds import JOB, NODE, QUEUE, Kind
from shoal.objects.task import RENDEZVOUS_FOLDER, Endpoint, TaskBootstrap, TaskSpec
from shoal.schedule.plan import Policy
from shoal.schedule.record import Record
from shoal.server.event_recorder import HistoryRecorder
from shoal.server.tokens import JobTokens
from shoal.store.base import SYSTEM, Store

__all__ = ["TOKEN_FILE", "Rendezvous", "Scheduling", "make_runner"]

TOKEN_FILE = "token"
"""In the task's rendezvous folder, for its owner alone; `$SHOAL_TOKEN_FILE` is its path."""

_JOB_THREADS = 4


@dataclass(frozen=True)
class Scheduling:
    """How this server decides; each is asked for every decision."""

    policy: Callable[[], Policy]
    levels: Callable[[], tuple[str, ...]]
    """Of the topology."""
    record: Callable[[Record], None]


class Rendezvous:
    """What tasks are told: where their peers are, and how to reach the platform as their job."""

    def __init__(self, tokens: JobTokens, api: str) -> None:
        self._tokens = tokens
        self._api = api

    def __call__(
        self, job: Job, attempt: int, specs: tuple[TaskSpec, ...], endpoints: tuple[Endpoint, ...]
    ) -> Mapping[str, TaskBootstrap]:
        """See `shoal.control.job.controller.Rendezvous`."""
        token = self._tokens.mint(job, attempt)
        own = {"SHOAL_API": self._api, "SHOAL_TOKEN_FILE": f"{RENDEZVOUS_FOLDER}/{TOKEN_FILE}"}
        told = rendezvous.render(job, attempt, specs, endpoints)
        return {
            name: msgspec.structs.replace(
                each, env={**each.env, **own}, files={**each.files, TOKEN_FILE: token}
            )
            for name, each in told.items()
        }


def make_runner(
    *,
    store: Store,
    cluster: Cluster,
    clock: Clock,
    guard: Guard,
    tell: Rendezvous,
    notebook: HistoryRecorder,
    scheduling: Scheduling,
) -> tuple[Runner, TaskCache]:
    """All controllers, ready to be started, and the tasks as they see them."""

    def cached(kind: Kind) -> ObjectCache[Any]:  # Any: each controller names its kind
        return ObjectCache(store, kind, actor=SYSTEM, clock=clock)

    jobs, queues, nodes = cached(JOB), cached(QUEUE), cached(NODE)
    tasks = TaskCache(cluster, clock=clock)
    states = NodeStates(cluster, tasks, clock=clock)
    job = JobController(
        jobs=jobs,
        nodes=nodes,
        tasks=tasks,
        cluster=cluster,
        guard=guard,
        rendezvous=tell,
        notebook=notebook,
    )
    scheduler = SchedulingController(
        jobs=jobs,
        queues=queues,
        nodes=nodes,
        tasks=tasks,
        guard=guard,
        clock=clock,
        journal=notebook,
        policy=scheduling.policy,
        levels=scheduling.levels,
        record=scheduling.record,
    )
    node = NodeController(nodes=nodes, states=states, guard=guard)
    queue = QueueController(queues=queues, jobs=jobs, nodes=nodes, tasks=tasks, guard=guard)
    controllers = [(scheduler, 1), (job, _JOB_THREADS), (node, 1), (queue, 1)]
    return Runner(controllers, clock=clock, guard=guard), tasks
