"""The components of a server over one `Platform` and one `Store`, and in what order they start and stop.

The store is open before anything is served. The rest starts in a thread while requests are already
answered: cluster, history, controllers, then the platform's workers. `readiness` reports each. A
component that cannot start is tried again, and `readiness` shows its error until it is up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shoal import faults, rendezvous
from shoal.admission.admission import DEFAULT_QUEUE, Admission
from shoal.background import SupervisedThread, reports
from shoal.clock import Clock
from shoal.cluster.platform import Platform, Worker
from shoal.control.lease import AlwaysLeader, LeaderLease
from shoal.history.base import About
from shoal.history.recorder import about
from shoal.objects.errors import Exists
from shoal.objects.job import Job
from shoal.objects.kinds import KINDS, NODE
from shoal.objects.meta import Metadata
from shoal.objects.node import Node
from shoal.objects.queue import Queue
from shoal.objects.task import RENDEZVOUS_FOLDER, SECRETS_FOLDER, Endpoint, TaskBootstrap, TaskSpec
from shoal.server.accounts import Accounts
from shoal.server.app import create_app
from shoal.server.auth import Authenticator, JobTokens
from shoal.server.event_recorder import Audit
from shoal.server.listeners import Listeners
from shoal.server.secrets import Secrets
from shoal.server.services import Services
from shoal.server.serving import Serving
from shoal.store.authorise import authorise
from shoal.store.base import SYSTEM, Actor, Store

if TYPE_CHECKING:
    from shoal.control.cache import Undecodable
    from shoal.control.context import ControllerContext
    from shoal.control.runner import Failure, Runner
    from shoal.history.sql import SqlHistory

_LOG = logging.getLogger("shoal.server")
_COMPONENTS = ("cluster", "history", "controllers")
_RETRY_SECONDS = 1.0
_TRIM_SECONDS = 600.0
_MOST_LOG_BYTES = 20 * 2**30
_OLDEST_LOG_SECONDS = 30 * 86400.0
_STOP_SECONDS = 5.0
_FIRST_NODE_SECONDS = 2.0
_MOST_FAILING = 20
TOKEN_FILE = "token"
"""In the task's rendezvous folder, for its owner alone; `$SHOAL_TOKEN_FILE` is its path."""


def open_store(place: str | Path, clock: Clock) -> Store:
    """The store in a file or at a URL, with the queue that always exists.

    Raises:
        ShoalError: it cannot be opened.
    """
    from shoal.store.sql import open_sql

    store = open_sql(place, authorise=authorise, clock=clock)
    try:
        store.create(Queue(metadata=Metadata(name=DEFAULT_QUEUE, namespace="")), actor=SYSTEM)
    except Exists:
        pass  # as after every start but the first
    except BaseException:
        store.close()
        raise
    return store


class Components:
    """Everything of a server but its store and its HTTP side."""

    def __init__(
        self,
        platform: Platform,
        store: Store,
        clock: Clock,
        *,
        tokens: JobTokens,
        audit: Audit,
        secrets: Secrets,
        shared: bool = False,
    ) -> None:
        """`shared`: other servers may have the same store, so that one of them leads."""
        self._platform = platform
        self._store = store
        self._clock = clock
        self._tokens = tokens
        self._audit = audit
        self._secrets = secrets
        platform.on_warning(self._settings_wrong)
        names = (*_COMPONENTS, *(worker.name for worker in platform.workers()))
        self._states: dict[str, str] = dict.fromkeys(names, "starting")
        self._stopping = threading.Event()
        self._started = clock.monotonic()
        self._thread: SupervisedThread | None = None
        self._history: SqlHistory | None = None
        self._runner: Runner | None = None
        self._context: ControllerContext | None = None
        self._node_seen = threading.Event()
        self._lease = (
            LeaderLease(store, "controllers", platform.name, actor=SYSTEM, clock=clock)
            if shared
            else None
        )

    def start(self, services: Services) -> None:
        """Bring up the rest, in a thread; gives each to `services` when it is up."""
        target = partial(self._run, services)
        self._thread = SupervisedThread("components", target, self._stopping, clock=self._clock)
        self._thread.start()

    def readiness(self) -> dict[str, str]:
        """Part to `ok`, or to what is wrong."""
        states = dict(self._states)
        if self._runner is not None and states["controllers"] == "ok" and not self._runner.synced:
            states["controllers"] = "reading what there is"
        return {"store": "ok", **states}

    def warnings(self) -> tuple[str, ...]:
        """What is wrong and stops nothing, a sentence each."""
        return self._platform.warnings()

    def failing(self) -> tuple[str, ...]:
        """What fails now and is tried again (objects, caches, threads), a sentence each."""
        found = [f"thread {each.name}: {each.error}" for each in reports() if each.error]
        if self._runner is not None:
            found += map(str, self._runner.failing())
        if self._context is not None:
            found += [str(each) for cache in self._context.caches() for each in cache.undecodable()]
        more = len(found) - _MOST_FAILING
        return tuple(found) if more <= 0 else (*found[:_MOST_FAILING], f"and {more} more")

    def nodes(self) -> list[Node]:
        """The Node objects. A server that starts waits up to two seconds for the first."""
        self._node_seen.wait(max(0.0, self._started + _FIRST_NODE_SECONDS - self._clock.monotonic()))
        if self._context is None:
            return []
        return self._context.cache(NODE).all()

    def _saw_node(self, old: Node | None, new: Node | None) -> None:
        if new is not None and new.status.capacity.cpu:
            self._node_seen.set()

    def _undecodable(self, found: Undecodable) -> None:
        what = About(kind=found.kind, namespace=found.namespace, name=found.name, uid=found.uid)
        self._audit.wrong(what, "Undecodable", str(found))

    def _object_fails(self, failure: Failure) -> None:
        kind = KINDS.get(failure.source.title())
        if kind is None or self._context is None or not failure.key[1]:
            return  # a cache, or the scheduler as a whole: shown by `failing` alone
        obj = self._context.cache(kind).get(failure.key)
        if obj is not None:
            self._audit.wrong(about(obj), "ReconcileFailing", str(failure))

    def state_damaged(self, sentence: str) -> None:
        """A state file of the server's was put aside: an event, once history is up."""
        home = About(kind="Cluster", namespace="", name="state", uid=self._platform.name)
        self._audit.wrong(home, "StateDamaged", sentence)

    def _settings_wrong(self, problem: str) -> None:
        _LOG.warning("%s", problem)
        cluster = About(kind="Cluster", namespace="", name="settings", uid=self._platform.name)
        self._audit.wrong(cluster, "SettingsIgnored", problem)

    def stop(self) -> None:
        """End all of it, in the opposite order; tasks and agents go on. Idempotent."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)
        for name, part in (
            *((worker.name, worker.close) for worker in self._platform.workers()),
            ("controllers", self._runner and self._runner.stop),
            ("lease", self._lease and self._lease.stop),
            ("cluster", self._platform.close),
            ("history", self._history and self._history.close),
        ):
            if part is not None:
                _attempt(name, part)

    def _run(self, services: Services) -> None:
        for name, start in (
            ("cluster", self._start_cluster),
            ("history", self._start_history),
            ("controllers", self._start_controllers),
            *((worker.name, _opening(worker)) for worker in self._platform.workers()),
        ):
            while self._states[name] != "ok" and not self._stopping.is_set():
                try:
                    start(services)
                except Exception as error:  # noqa: BLE001 - shown by `readiness`, and tried again
                    if self._states[name] != str(error):
                        _LOG.error("%s does not come up: %s", name, error, exc_info=error)
                    self._states[name] = str(error)
                    self._clock.wait(self._stopping, _RETRY_SECONDS)
                else:
                    self._states[name] = "ok"
        faults.point("server.components.started")
        self._tidy_forever()

    def _start_cluster(self, services: Services) -> None:
        self._platform.open()
        services.cluster_part = self._platform.cluster
        services.logs_part = self._platform.logs

    def _start_history(self, services: Services) -> None:
        from shoal.history.sql import SqlHistory

        self._history = SqlHistory(self._platform.history, now=self._clock.now)
        services.history_part = self._history
        self._audit.attach(services.recorder)

    def _start_controllers(self, services: Services) -> None:
        from shoal.control.context import ControllerContext
        from shoal.control.controllers import build
        from shoal.control.runner import Runner
        from shoal.control.scheduling import DecisionFiles
        from shoal.schedule.plan import policy_named
        from shoal.server.event_recorder import HistoryRecorder

        assert self._history is not None
        guard = self._lease or AlwaysLeader()
        if self._lease is not None:
            self._lease.start()
        cluster, settings = self._platform.cluster, self._platform.settings
        files = DecisionFiles(self._platform.decisions, lambda: settings().record)
        context = ControllerContext(
            store=self._store,
            cluster=cluster,
            clock=self._clock,
            guard=guard,
            rendezvous=Rendezvous(self._tokens, self._platform.task_api, self._secrets.for_tasks),
            recorder=HistoryRecorder(services.recorder, cluster),
            policy=lambda: policy_named(settings().policy),
            levels=lambda: settings().topology,
            record=files.record,
            history=self._history,
            logs=self._platform.logs,
            outputs=self._platform.output,
        )
        context.cache(NODE).on_change(self._saw_node)
        controllers = build(context)
        for cache in context.caches():
            cache.on_undecodable(self._undecodable)
        on_failing = self._object_fails
        self._runner = Runner(controllers, clock=self._clock, guard=guard, on_failing=on_failing)
        self._context = services.control = context
        self._runner.start()

    def _tidy_forever(self) -> None:
        """Keep history and logs within their bounds."""
        from shoal.history.base import Retention

        logs, history = self._platform.logs, self._history
        bounds = (_MOST_LOG_BYTES, _OLDEST_LOG_SECONDS)
        while not self._clock.wait(self._stopping, _TRIM_SECONDS):
            now = self._clock.now()
            if history is not None:
                _attempt("trim of history", partial(history.trim, Retention(), now))
            _attempt("trim of logs", partial(logs.trim, *bounds, now))


def _opening(worker: Worker) -> Callable[[Services], None]:
    return lambda _: worker.open()


def _attempt(name: str, action: Callable[[], object]) -> None:
    try:
        action()
    except Exception:  # noqa: BLE001 - what follows is done all the same
        _LOG.exception("%s failed", name)


@dataclass(frozen=True)
class Assembled:
    """A server, ready to be run and to have its later parts started."""

    services: Services
    components: Components
    serving: Serving


def assemble(
    platform: Platform, store: Store, clock: Clock, listeners: Listeners, *, shared: bool = False
) -> Assembled:
    """Assemble a server over a platform, an open store and open listeners."""
    job_tokens, accounts, audit = JobTokens.of(platform.keys), Accounts(store, clock), Audit()
    secrets = Secrets(store, platform.keys, clock)
    components = Components(
        platform, store, clock, tokens=job_tokens, audit=audit, secrets=secrets, shared=shared
    )
    services = Services(
        store=store,
        admission=Admission(
            store,
            components.nodes,
            lambda: platform.settings().topology,
            authorise=authorise,
        ),
        clock=clock,
        accounts=accounts,
        secrets=secrets,
        audit=audit,
        home=platform.name,
        readiness=components.readiness,
        warnings=components.warnings,
        failing=components.failing,
    )

    async def find_job(namespace: str, name: str) -> Job:
        return await services.on_store.call(store.get, Job, namespace, name, actor=SYSTEM)

    async def find_user(token: str) -> Actor:
        return await services.on_store.call(accounts.authenticate, token)

    services.authenticator = Authenticator(job_tokens, find_user, find_job)
    return Assembled(services, components, Serving(create_app(services), listeners, services.signals))


class Rendezvous:
    """Bootstrap of tasks: the endpoints of their peers, how to reach the platform as their job, and
    secrets. Raises what `Secrets.for_tasks` does."""

    def __init__(
        self,
        tokens: JobTokens,
        api: str,
        secrets: Callable[[Job, str], tuple[dict[str, str], dict[str, str]]],
    ) -> None:
        self._tokens = tokens
        self._api = api
        self._secrets = secrets

    def __call__(
        self, job: Job, attempt: int, specs: tuple[TaskSpec, ...], endpoints: tuple[Endpoint, ...]
    ) -> Mapping[str, TaskBootstrap]:
        """See `shoal.control.job.controller.Rendezvous`."""
        token = self._tokens.mint(job, attempt)
        own = {"SHOAL_API": self._api, "SHOAL_TOKEN_FILE": f"{RENDEZVOUS_FOLDER}/{TOKEN_FILE}"}
        rendered = rendezvous.render(job, attempt, specs, endpoints)
        secrets = {role: self._secrets(job, role) for role in {spec.role for spec in specs}}
        bootstraps: dict[str, TaskBootstrap] = {}
        for spec in specs:
            each, (secret_env, secret_files) = rendered[spec.name], secrets[spec.role]
            folder = {"SHOAL_SECRETS": f"{RENDEZVOUS_FOLDER}/{SECRETS_FOLDER}"} if secret_files else {}
            bootstraps[spec.name] = msgspec.structs.replace(
                each,
                env={**each.env, **own, **folder},
                files={**each.files, TOKEN_FILE: token},
                secret_env=secret_env,
                secret_files=secret_files,
            )
        return bootstraps
