"""A real server over real sockets, in a thread of the test: everything but the process around it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from shoal.admission.admission import Admission
from shoal.client import Client
from shoal.clock import SystemClock
from shoal.cluster.base import Cluster
from shoal.cluster.local import home as homes
from shoal.cluster.simulated import SimulatedCluster, run_for
from shoal.control.context import ControllerContext
from shoal.control.lease import AlwaysLeader
from shoal.history.files import FileLogs
from shoal.objects.job import Job, JobSpec, Role
from shoal.objects.kinds import JOB
from shoal.objects.meta import Metadata
from shoal.objects.node import Capacity, Node, NodeStatus
from shoal.objects.queue import Queue
from shoal.server.accounts import Accounts
from shoal.server.app import create_app
from shoal.server.auth import Authenticator, JobTokens
from shoal.server.listeners import Listener, Listeners, listen_tcp, server_tls
from shoal.server.secrets import Secrets
from shoal.server.services import Services
from shoal.server.serving import Serving
from shoal.store.authorise import authorise
from shoal.store.base import SYSTEM, Actor, Store
from shoal.store.memory import MemoryStore
from tests.support.memory_history import MemoryHistory

__all__ = ["LiveServer", "a_job", "eventually"]


class LiveServer:
    """Starts at once; `close` ends it. `home/api.sock` and `home/tasks/api.sock` are its listeners."""

    def __init__(
        self,
        home: Path,
        *,
        store: Store | None = None,
        cluster: Cluster | None = None,
        declared: Iterable[Capacity] = (),
        levels: Sequence[str] = (),
        tcp: bool = False,
        owner_uid: int | None = None,
        default_queue: bool = True,
    ) -> None:
        self.home = homes.Home(home).create()
        self.store = store or MemoryStore(authorise=authorise)
        self.history = MemoryHistory()
        self.logs = FileLogs(self.home.logs)
        self.job_tokens = JobTokens.of(self.home.keys)
        self.accounts = Accounts(self.store, SystemClock())
        self._owner_uid = owner_uid
        self._cluster = cluster
        self.declared = list(declared)
        """What the nodes can hold; a test may change it while the server runs."""
        self._levels = levels
        self._tls = server_tls(self.home.keys) if tcp else None
        self.port = 0
        if default_queue and not _has_default_queue(self.store):
            self.store.create(Queue(metadata=Metadata(name="default", namespace="")), actor=SYSTEM)
        self.start()

    def start(self) -> None:
        """Serve; again after `stop`, as a restarted server would."""
        self.services = Services(
            store=self.store,
            admission=Admission(self.store, self._nodes, lambda: self._levels, authorise=authorise),
            clock=SystemClock(),
            accounts=self.accounts,
            secrets=Secrets(self.store, self.home.keys, SystemClock()),
            home=str(self.home.path),
        )
        self.services.history_part = self.history
        self.services.logs_part = self.logs
        self.services.cluster_part = self._cluster

        async def find_job(namespace: str, name: str) -> Job:
            return await self.services.on_store.call(self.store.get, Job, namespace, name, actor=SYSTEM)

        async def find_user(token: str) -> Actor:
            return await self.services.on_store.call(self.accounts.authenticate, token)

        self.services.authenticator = Authenticator(
            self.job_tokens, find_user, find_job, self._owner_uid
        )
        listeners = [
            Listener("api", homes.listen(self.home.api_socket)),
            Listener("tasks", homes.listen(self.home.tasks_socket)),
        ]
        if self._tls:
            listeners.append(Listener("tcp", listen_tcp("127.0.0.1:0"), self._tls.context))
            self.port = listeners[-1].socket.getsockname()[1]
        self.serving = Serving(create_app(self.services), Listeners(listeners), self.services.signals)
        self._thread = threading.Thread(target=self.serving.run, name="server", daemon=True)
        self._thread.start()

    def _nodes(self) -> list[Node]:
        return [
            Node(metadata=Metadata(name=f"n{at}"), status=NodeStatus(capacity=capacity))
            for at, capacity in enumerate(self.declared)
        ]

    def stop(self) -> None:
        """End the server; what it kept stays."""
        self.serving.stop()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the server does not end"
        self.services.close()

    def close(self) -> None:
        if self._thread.is_alive():
            self.stop()
        self.store.close()

    def with_caches(self) -> ControllerContext:
        """The caches of controllers over this store, filled; answers are given from them from now on."""
        context = ControllerContext(
            store=self.store,
            cluster=self._cluster or SimulatedCluster(SystemClock(), {}, run_for(None)),
            clock=SystemClock(),
            guard=AlwaysLeader(),
            rendezvous=lambda *_: {},
            recorder=None,  # type: ignore[arg-type]  # no controller is built
        )
        context.cache(JOB).sync()
        context.tasks.sync()
        self.services.control = context
        return context

    def token_of(self, namespace: str, name: str) -> str:
        """The token that the tasks of this job have."""
        return self.job_tokens.mint(self.store.get(Job, namespace, name, actor=SYSTEM))

    @property
    def url(self) -> str:
        """The TCP listener's address."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def trust(self) -> dict[str, str]:
        """What a client of `url` needs beside a token."""
        return {"fingerprint": self._tls.fingerprint} if self._tls else {}

    def client(self, **options: object) -> Client:
        return Client.connect(self.home.path, **options)  # type: ignore[arg-type]


def a_job(name: str = "train", namespace: str = "default", **spec: object) -> Job:
    role = Role(command=("true",))
    return Job(
        metadata=Metadata(name=name, namespace=namespace),
        spec=JobSpec(**{"roles": (role,), **spec}),  # type: ignore[arg-type]
    )


def eventually(check: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until `check` is true.

    Raises:
        AssertionError: it has not become so in time.
    """
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.005)


def _has_default_queue(store: Store) -> bool:
    from shoal.objects.kinds import QUEUE

    return any(r.object.metadata.name == "default" for r in store.list(QUEUE, actor=SYSTEM).records)
