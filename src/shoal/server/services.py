"""What the routers use: the parts of a running server, as far as they are up, and the threads and
signals that requests wait for.

The store is there before the first request; history, logs and cluster come up behind it, and a request
that needs one of them before gets `Unavailable`. Blocking calls run off the event loop, each kind of
work in a bounded pool of its own, so store calls never queue behind the reading of logs or behind a node
that does not answer.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, ParamSpec, TypeVar
from weakref import WeakSet

from fastapi import Depends, Request

from shoal.admission.admission import Admission
from shoal.clock import Clock
from shoal.cluster.base import Cluster, Task
from shoal.history.base import History, Logs
from shoal.history.recorder import Recorder
from shoal.metrics import AUTHENTICATION_FAILURES
from shoal.objects import codec
from shoal.objects.errors import Invalid, TooManyRequests, Unauthenticated, Unavailable
from shoal.server.accounts import Accounts
from shoal.server.auth import Authenticator
from shoal.server.event_recorder import Audit
from shoal.server.listeners import Seat
from shoal.server.metric_points import MetricIntake
from shoal.server.secrets import Secrets
from shoal.store.base import Actor, Store

if TYPE_CHECKING:
    from shoal.control.context import ControllerContext
    from shoal.control.task_cache import TaskCache

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_STORE_THREADS = 12
_STREAM_THREADS = 24
_NODE_THREADS = 16


class BlockingPool:
    """A bounded pool of threads; `call` waits for its turn."""

    def __init__(self, name: str, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=name)

    async def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What `function` returns or raises. When the caller is cancelled the call runs on and its
        result is dropped."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(function, *args, **kwargs))

    def close(self) -> None:
        """Start no further call; running ones end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Signal:
    """One coroutine's alarm: `set` from any thread, `wait` on the loop it was made for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the waiter, now or at its next `wait`. Never blocks."""
        with suppress(RuntimeError):  # the loop is closed: no coroutine waits
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout_seconds: float) -> bool:
        """Wait until set, or for the timeout; True when it was set. Resets it."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class Signals:
    """The signals of all open streams; each looks at `stopping` whenever it is woken."""

    def __init__(self) -> None:
        self.stopping = False
        self._open: WeakSet[Signal] = WeakSet()

    def new(self) -> Signal:
        """A signal for the calling coroutine."""
        signal = Signal(asyncio.get_running_loop())
        self._open.add(signal)
        return signal

    def stop(self) -> None:
        """Wake every stream, to end. On the loop."""
        self.stopping = True
        for signal in list(self._open):
            signal.set()


class SharedDocuments:
    """The documents that watches begin with, one copy for all watches that are being filled. A context
    manager for as long as one is. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._documents: dict[str, dict[bytes, bytes]] = {}
        self._filling = 0

    def __enter__(self) -> None:
        with self._lock:
            self._filling += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._filling -= 1
            if not self._filling:
                self._documents.clear()

    def shared(self, kind: str, documents: list[bytes]) -> list[bytes]:
        """Equal documents of that kind, the very ones that other watches hold where there are."""
        with self._lock:
            known = self._documents.get(kind, {})
            self._documents[kind] = newest = {each: known.get(each, each) for each in documents}
        return list(newest.values())


@dataclass
class Services:
    """One server's parts. Made before the event loop runs; the later parts are set from any thread."""

    store: Store
    admission: Admission
    clock: Clock
    accounts: Accounts
    secrets: Secrets
    audit: Audit = field(default_factory=Audit)
    authenticator: Authenticator | None = None
    home: str = ""
    """Identifies the platform to the owner: the path of a home."""
    readiness: Callable[[], dict[str, str]] = dict
    """Part to `ok`, or to what is wrong."""
    warnings: Callable[[], tuple[str, ...]] = tuple
    """What is wrong and stops nothing, a sentence each."""
    failing: Callable[[], tuple[str, ...]] = tuple
    """What fails now and is tried again, a sentence each."""
    signals: Signals = field(default_factory=Signals)
    first_documents: SharedDocuments = field(default_factory=SharedDocuments)
    on_store: BlockingPool = field(default_factory=lambda: BlockingPool("store", _STORE_THREADS))
    on_streams: BlockingPool = field(default_factory=lambda: BlockingPool("streams", _STREAM_THREADS))
    on_nodes: BlockingPool = field(default_factory=lambda: BlockingPool("nodes", _NODE_THREADS))
    """For what asks nodes, which may not answer for a while."""
    started: float = field(default_factory=time.time)
    history_part: History | None = None
    logs_part: Logs | None = None
    cluster_part: Cluster | None = None
    _metrics: MetricIntake | None = None
    _recorder: Recorder | None = None
    _recorder_lock: threading.Lock = field(default_factory=threading.Lock)
    control: ControllerContext | None = None
    """The controllers' caches of objects and tasks, which reads are answered from."""

    @property
    def history(self) -> History:
        """Raises:
        Unavailable: it is not up yet.
        """
        return _up(self.history_part, "history")

    @property
    def recorder(self) -> Recorder:
        """Records into history; one for the whole server, since it counts events that repeat.

        Raises:
        Unavailable: history is not up yet.
        """
        with self._recorder_lock:
            if self._recorder is None:
                self._recorder = Recorder(self.history, self.clock)
            return self._recorder

    @property
    def metrics(self) -> MetricIntake:
        """Takes the metric points that tasks report; one for the whole server, as it counts them."""
        if self._metrics is None:
            self._metrics = MetricIntake(self.clock)
        return self._metrics

    @property
    def logs(self) -> Logs:
        """Raises:
        Unavailable: they are not up yet.
        """
        return _up(self.logs_part, "reader of logs")

    @property
    def cluster(self) -> Cluster:
        """Raises:
        Unavailable: it is not up yet.
        """
        return _up(self.cluster_part, "connection to the nodes")

    @property
    def tasks(self) -> TaskCache:
        """The tasks as the controllers see them.

        Raises:
        Unavailable: they have not been listed yet.
        """
        tasks = self.control.tasks if self.control is not None else None
        return _up(tasks if tasks is not None and tasks.synced else None, "list of tasks")

    def known_tasks(self, job_uid: str) -> tuple[Task, ...] | None:
        """The tasks of a job that have not been acknowledged; None while not all of them are known."""
        tasks = self.control.tasks if self.control is not None else None
        return tasks.of_job(job_uid) if tasks is not None and tasks.complete else None

    def close(self) -> None:
        """End the threads that serve requests; the parts are closed by the code that made them."""
        self.on_store.close()
        self.on_streams.close()
        self.on_nodes.close()


async def _services(request: Request) -> Services:  # async: others are each called in a thread
    return request.app.state.services


ServicesNow = Annotated[Services, Depends(_services)]


async def actor_of_request(request: Request, services: ServicesNow) -> Actor:
    """The actor that makes a request.

    Raises:
        Unauthenticated, Forbidden: see `Authenticator.actor`.
        TooManyRequests: its job or user has too many connections.
    """
    authenticator = authenticator_of(services)
    state = request.scope.get("state", {})
    with counted(request):
        actor = await authenticator.actor(state, request.headers.get("authorization", ""))
    identify(request, f"job:{'/'.join(actor.job[:2])}" if actor.job else f"user:{actor.name}")
    return actor


def authenticator_of(services: Services) -> Authenticator:
    """Raises:
    Unavailable: it is not up yet.
    """
    if services.authenticator is None:
        raise Unavailable("the server is still starting")
    return services.authenticator


@contextmanager
def counted(request: Request) -> Generator[None]:
    """Count a failed authentication."""
    try:
        yield
    except Unauthenticated:
        AUTHENTICATION_FAILURES.labels(request.scope.get("state", {}).get("listener", "tcp")).inc()
        raise


def identify(request: Request, name: str) -> None:
    """Count the request's connection for a job or user from now on.

    Raises:
        TooManyRequests: it has too many.
    """
    seat: Seat | None = request.scope.get("state", {}).get("seat")
    if seat is not None and not seat.identify(name):
        kind, _, short = name.partition(":")
        raise TooManyRequests(
            f"{kind} {short} has too many connections to this server",
            hint="close some, or try again in a second",
        )


ActorNow = Annotated[Actor, Depends(actor_of_request)]


def _up(part: T | None, name: str) -> T:
    if part is None:
        raise Unavailable(f"the server is still starting: its {name} is not up yet", hint="try again")
    return part


async def body_of(
    request: Request, wanted: type[T], refuse: Callable[[], None], what: str = "the body"
) -> T:
    """The decoded body. The store checks the right of a call that can be made; of one that cannot,
    `refuse` (which raises Forbidden) does, so that a body says nothing to those without the right.

    Raises:
        Invalid: see `codec.from_body`.
    """
    try:
        return codec.from_body(await request.body(), wanted, what)
    except Invalid:
        refuse()
        raise
