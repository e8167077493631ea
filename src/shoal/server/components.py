"""Which implementation stands behind each protocol, and in what order they come up and go down.

The store comes first, before anything is served. The rest follows in a thread while requests are
already being answered: cluster, history, controllers, then the watchdog of the agents. `readiness` says
how far that is. A part that does not come up is tried again, and says so meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from shoal import faults
from shoal.admission.admission import DEFAULT_QUEUE, Admission
from shoal.clock import Clock
from shoal.cluster.base import Task
from shoal.cluster.local import components, nodes
from shoal.cluster.local.home import Home
from shoal.cluster.local.settings import LiveSettings
from shoal.control.lease import AlwaysLeader, LeaderLease
from shoal.history.base import About
from shoal.objects.errors import Exists, ShoalError
from shoal.objects.job import Job
from shoal.objects.meta import Metadata
from shoal.objects.node import Capacity
from shoal.objects.queue import Queue
from shoal.server.app import create_app
from shoal.server.auth import Authenticator
from shoal.server.event_recorder import Audit
from shoal.server.listeners import Listeners
from shoal.server.services import Services
from shoal.server.serving import Serving
from shoal.server.tokens import JobTokens, Tokens
from shoal.store.authorise import authorise
from shoal.store.base import SYSTEM, Store

if TYPE_CHECKING:
    from shoal.cluster.local.cluster import LocalCluster
    from shoal.cluster.local.watchdog import Watchdog
    from shoal.control.runner import Runner
    from shoal.history.sql import SqlHistory

__all__ = ["Assembled", "Components", "assemble", "declared_capacities", "open_store"]

_LOG = logging.getLogger("shoal.server")
_PARTS = ("cluster", "history", "controllers", "watchdog")
_RETRY_SECONDS = 1.0
_TRIM_SECONDS = 600.0
_MOST_LOG_BYTES = 20 * 2**30
_OLDEST_LOG_SECONDS = 30 * 86400.0
_STOP_SECONDS = 5.0


def open_store(home: Home, url: str, clock: Clock) -> Store:
    """The store under the home (or at `url`), with the queue that always exists.

    Raises:
        ShoalError: it cannot be opened.
    """
    from shoal.store.sql import open_sql

    store = open_sql(url or home.store_db, authorise=authorise, clock=clock)
    try:
        store.create(Queue(metadata=Metadata(name=DEFAULT_QUEUE, namespace="")), actor=SYSTEM)
    except Exists:
        pass  # as after every start but the first
    except BaseException:
        store.close()
        raise
    return store


def declared_capacities(home: Home) -> list[Capacity]:
    """What each declared node can hold."""
    return [node.capacity for node in nodes.load(home)]


class Components:
    """Everything of a server but its store and its HTTP side."""

    def __init__(
        self,
        home: Home,
        store: Store,
        clock: Clock,
        *,
        tokens: JobTokens,
        audit: Audit,
        shared: bool = False,
    ) -> None:
        """`shared`: other servers may have the same store, so that one of them leads."""
        self._home = home
        self._store = store
        self._clock = clock
        self._tokens = tokens
        self._audit = audit
        self.settings = LiveSettings(home, self._settings_wrong)
        """What holds for the cluster, as it is now."""
        self._states: dict[str, str] = dict.fromkeys(_PARTS, "starting")
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._cluster: LocalCluster | None = None
        self._history: SqlHistory | None = None
        self._runner: Runner | None = None
        self._watchdog: Watchdog | None = None
        self._lease = (
            LeaderLease(store, "controllers", str(home.path), actor=SYSTEM, clock=clock)
            if shared
            else None
        )

    def start(self, services: Services) -> None:
        """Bring up the rest, in a thread; gives each to `services` when it is up."""
        self._thread = threading.Thread(
            target=self._run, args=(services,), name="components", daemon=True
        )
        self._thread.start()

    def readiness(self) -> dict[str, str]:
        """Part to `ok`, or to what is wrong."""
        states = dict(self._states)
        if self._runner is not None and states["controllers"] == "ok" and not self._runner.synced:
            states["controllers"] = "reading what there is"
        return {"store": "ok", **states}

    def warnings(self) -> tuple[str, ...]:
        """What is wrong and stops nothing, a sentence each."""
        problem = self.settings.problem
        return (problem,) if problem else ()

    def _settings_wrong(self, problem: str) -> None:
        _LOG.warning("%s", problem)
        about = About(kind="Cluster", namespace="", name="settings", uid=str(self._home.path))
        self._audit.wrong(about, "SettingsIgnored", problem)

    def stop(self) -> None:
        """End all of it, in the opposite order; tasks and agents go on. Idempotent."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)
        for name, part in (
            ("watchdog", self._watchdog and self._watchdog.close),
            ("controllers", self._runner and self._runner.stop),
            ("lease", self._lease and self._lease.stop),
            ("cluster", self._cluster and self._cluster.close),
            ("history", self._history and self._history.close),
        ):
            if part is not None:
                _attempt(name, part)

    def _run(self, services: Services) -> None:
        for name, start in (
            ("cluster", self._start_cluster),
            ("history", self._start_history),
            ("controllers", self._start_controllers),
            ("watchdog", self._start_watchdog),
        ):
            while not self._stopping.is_set():
                try:
                    start(services)
                except (ShoalError, OSError) as error:
                    if self._states[name] != str(error):
                        _LOG.error("%s does not come up: %s", name, error)
                    self._states[name] = str(error)
                    self._clock.wait(self._stopping, _RETRY_SECONDS)
                else:
                    self._states[name] = "ok"
                    break
        faults.point("server.components.started")
        self._tidy_forever()

    def _start_cluster(self, services: Services) -> None:
        from shoal.cluster.local.cluster import LocalCluster

        self._cluster = LocalCluster(self._home, self._clock)
        services.cluster_part = self._cluster

    def _start_history(self, services: Services) -> None:
        from shoal.history.files import FileLogs
        from shoal.history.recorder import Recorder
        from shoal.history.sql import SqlHistory

        services.logs_part = FileLogs(self._home.logs)
        self._history = SqlHistory(self._home.history_db, now=self._clock.now)
        services.history_part = self._history
        self._audit.attach(Recorder(self._history, self._clock))

    def _start_controllers(self, services: Services) -> None:
        from shoal.control.controllers import ControllerContext, build
        from shoal.control.runner import Runner
        from shoal.control.scheduling import DecisionFiles
        from shoal.history.recorder import Recorder
        from shoal.schedule.plan import policy_named
        from shoal.server.bootstrap import Rendezvous
        from shoal.server.event_recorder import HistoryRecorder

        assert self._cluster is not None
        assert self._history is not None
        guard = self._lease or AlwaysLeader()
        if self._lease is not None:
            self._lease.start()
        settings = self.settings
        files = DecisionFiles(self._home.decisions, lambda: settings().record)
        context = ControllerContext(
            store=self._store,
            cluster=self._cluster,
            clock=self._clock,
            guard=guard,
            rendezvous=Rendezvous(self._tokens, f"unix://{self._home.tasks_socket}"),
            recorder=HistoryRecorder(Recorder(self._history, self._clock), self._cluster),
            policy=lambda: policy_named(settings().policy),
            levels=lambda: settings().topology,
            record=files.record,
        )
        self._runner, tasks = Runner(build(context), clock=self._clock, guard=guard), context.tasks
        self._runner.start()

        def known_tasks(job_uid: str) -> tuple[Task, ...] | None:
            complete = tasks.synced and not tasks.unreachable_nodes
            return tasks.of_job(job_uid) if complete else None

        services.known_tasks = known_tasks

    def _start_watchdog(self, services: Services) -> None:
        from shoal.cluster.local.watchdog import Watchdog

        def agents() -> list[str]:
            return [c for c in components.components_of(self._home) if c != components.SERVER]

        self._watchdog = Watchdog(self._home, agents)
        self._watchdog.open()

    def _tidy_forever(self) -> None:
        """Keep history and logs within their bounds."""
        from shoal.history.base import Retention
        from shoal.history.files import FileLogs

        logs, history = FileLogs(self._home.logs), self._history
        bounds = (_MOST_LOG_BYTES, _OLDEST_LOG_SECONDS)
        while not self._clock.wait(self._stopping, _TRIM_SECONDS):
            now = self._clock.now()
            if history is not None:
                _attempt("trim of history", partial(history.trim, Retention(), now))
            _attempt("trim of logs", partial(logs.trim, *bounds, now))


def _attempt(name: str, action: Callable[[], object]) -> None:
    try:
        action()
    except (ShoalError, OSError):
        _LOG.exception("%s failed", name)


@dataclass(frozen=True)
class Assembled:
    """A server, ready to be run and to have its later parts started."""

    services: Services
    components: Components
    serving: Serving


def assemble(
    home: Home, store: Store, clock: Clock, listeners: Listeners, *, shared: bool = False
) -> Assembled:
    """Put a server together over an open store and open listeners."""
    job_tokens, people, audit = JobTokens.of(home.keys), Tokens(home.keys / "tokens.json"), Audit()
    components = Components(home, store, clock, tokens=job_tokens, audit=audit, shared=shared)
    services = Services(
        store=store,
        admission=Admission(
            store,
            lambda: declared_capacities(home),
            lambda: components.settings().topology,
            authorise=authorise,
        ),
        clock=clock,
        people=people,
        audit=audit,
        home=home.path,
        readiness=components.readiness,
        warnings=components.warnings,
    )

    async def find_job(namespace: str, name: str) -> Job:
        return await services.on_store.call(store.get, Job, namespace, name, actor=SYSTEM)

    services.authenticator = Authenticator(job_tokens, people, find_job)
    return Assembled(services, components, Serving(create_app(services), listeners, services.signals))
