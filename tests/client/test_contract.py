"""The client keeps the Store's contract, over a real server with a store in memory behind it.

Two things are made to fit. The suite's calls name actors, so the server of these tests believes what
a token says of its actor. And the queue `default`, which a real server has, would be one object more
than the suite expects, so it is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.admission.admission import Admission
from shoal.client import Client
from shoal.clock import Clock
from shoal.objects.meta import Metadata
from shoal.objects.queue import Queue
from shoal.store.base import Actor, Authorise, Store, allow_all
from shoal.store.memory import MemoryStore, Window
from shoal.testing.store import Capability, StoreContract, StoreHarness
from shoal.testing.store.writes import NewerJob
from tests.server.harness import LiveServer


class _Believing:
    """An authenticator that takes the token for what it says."""

    async def actor(self, state: Mapping[str, Any], authorization: str) -> Actor:
        return msgspec.json.decode(authorization.removeprefix("Bearer "), type=Actor)


class _OneQueue(Admission):
    """Knows a queue that is not in the store."""

    def _queue(self, name: str) -> Queue | None:
        return Queue(metadata=Metadata(name=name, namespace=""))


class _AsActor:
    """A store whose calls go through a client of the actor that they name."""

    def __init__(self, server: LiveServer) -> None:
        self._server = server
        self._clients: dict[Actor, Client] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, actor: Actor, **options: Any) -> Any:
            if name == "create" and isinstance(arguments[0], NewerJob):
                # no server admits what it does not know; a newer one has put it into the store
                return self._server.store.create(arguments[0], actor=actor)
            if name in ("get", "update") and NewerJob in (arguments[0], type(arguments[0])):
                return getattr(self._server.store, name)(*arguments, actor=actor)
            if name == "create":
                options["idempotent"] = False  # the key would be an annotation that nobody asked for
            return getattr(self._client(actor), name)(*arguments, actor=actor, **options)

        return call

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _client(self, actor: Actor) -> Client:
        if actor not in self._clients:
            self._clients[actor] = self._server.client(token=msgspec.json.encode(actor).decode())
        return self._clients[actor]


class ClientHarness:
    capabilities: frozenset[Capability] = frozenset({"authorise", "clock", "window"})
    """Not `lagging`: a client's watch reads ahead of its reader; see test_watch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.servers: list[LiveServer] = []

    def open(
        self,
        *,
        authorise: Authorise | None = None,
        clock: Clock | None = None,
        window: Window | None = None,
    ) -> Store:
        store = MemoryStore(authorise=authorise or allow_all, clock=clock, window=window)
        home = self._folder / f"home-{len(self.servers)}"
        server = LiveServer(home, store=store, default_queue=False)
        server.services.authenticator = _Believing()  # type: ignore[assignment]
        server.services.admission = _OneQueue(store, list, authorise=allow_all)
        self.servers.append(server)
        return _AsActor(server)  # type: ignore[return-value]

    def command(self) -> tuple[str, str]:
        raise NotImplementedError


@pytest.mark.slow
class TestClient(StoreContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[StoreHarness]:
        made = ClientHarness(tmp_path)
        yield made
        for server in made.servers:
            server.close()
