"""The client for asyncio: every call of `Client`, awaited; every iterator, an async one.

>>> import asyncio
>>> from shoal.client import AsyncClient
>>> async def main():
...     async with AsyncClient.connect() as shoal:
...         job = await shoal.run("python train.py", name="awaited", cpu="500m")
...         print((await shoal.get("job", "default", "awaited")).spec.roles[0].command)
...         await shoal.delete("job", "default", "awaited")
>>> asyncio.run(main())
('python', 'train.py')

Signatures, docstrings and types are those of `Client`: each method here is made from the one there. A
call runs in a thread of its own, so an answer that takes long keeps no other waiting; at most
`most_calls` requests are under way at once, waits and streams apart.

Cancelling a task that awaits a request leaves the request to itself: whether it was carried out is not
known. A wait or a stream hangs up when it is cancelled or closed.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from shoal.client.client import Client
from shoal.client.session import RemoteSession
from shoal.store.base import Event, Watch

__all__ = ["AsyncClient", "AsyncSession"]

P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W")
_MOST_BUFFERED = 256


class _Asynchronous(Generic[W]):
    """An object of which each call runs in a thread."""

    def __init__(self, wrapped: W, limit: asyncio.Semaphore) -> None:
        self.wrapped = wrapped
        self.limit = limit


def _call(
    method: Callable[Concatenate[W, P], T],
) -> Callable[Concatenate[_Asynchronous[W], P], Coroutine[Any, Any, T]]:
    """The method as a coroutine; of those that run at once there is a limit."""

    @functools.wraps(method)
    async def call(self: _Asynchronous[W], *arguments: P.args, **options: P.kwargs) -> T:
        async with self.limit:
            return await _in_thread(functools.partial(method, self.wrapped, *arguments, **options))

    return call


def _wait(
    method: Callable[Concatenate[Client, P], T],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """The method as a coroutine that may take for ever, and hangs up when it is cancelled."""

    @functools.wraps(method)
    async def wait(self: AsyncClient, *arguments: P.args, **options: P.kwargs) -> T:
        twin = self.twin()
        try:
            return await _in_thread(functools.partial(method, twin, *arguments, **options))
        finally:
            twin.close()

    return wait


def _stream(
    method: Callable[Concatenate[Client, P], Iterator[T]],
) -> Callable[Concatenate[AsyncClient, P], AsyncGenerator[T]]:
    """The items of the iterator, which a thread reads ahead of the caller, within a bound."""

    @functools.wraps(method)
    async def stream(self: AsyncClient, *arguments: P.args, **options: P.kwargs) -> AsyncGenerator[T]:
        twin = self.twin()
        items: asyncio.Queue[tuple[T] | BaseException | None] = asyncio.Queue()
        room, loop = threading.Semaphore(_MOST_BUFFERED), asyncio.get_running_loop()
        closed = threading.Event()

        def put(item: tuple[T] | BaseException | None) -> None:
            with suppress(RuntimeError):  # the loop has ended without closing this generator
                loop.call_soon_threadsafe(items.put_nowait, item)

        def read() -> None:
            try:
                for item in method(twin, *arguments, **options):
                    room.acquire()
                    if closed.is_set():
                        return
                    put((item,))
            except BaseException as error:  # noqa: BLE001 - raised where the items are taken
                put(error)
            else:
                put(None)

        threading.Thread(target=read, name=f"shoal {method.__name__}", daemon=True).start()
        try:
            while (item := await items.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                room.release()
                yield item[0]
        finally:
            closed.set()
            room.release()
            twin.close()

    return stream


def _session(
    method: Callable[Concatenate[Client, P], RemoteSession],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, AsyncSession]]:
    """The method as a coroutine that gives an `AsyncSession`."""

    @functools.wraps(method)
    async def session(self: AsyncClient, *arguments: P.args, **options: P.kwargs) -> AsyncSession:
        opened = functools.partial(method, self.synchronous, *arguments, **options)
        return AsyncSession(await _in_thread(opened), asyncio.Semaphore(2))

    return session


def _events(
    method: Callable[Concatenate[Client, P], Watch],
) -> Callable[Concatenate[Client, P], Iterator[Event]]:
    """The events of the watch that the method opens, without end."""

    @functools.wraps(method)
    def events(client: Client, *arguments: P.args, **options: P.kwargs) -> Iterator[Event]:
        watch = method(client, *arguments, **options)
        try:
            while True:
                yield from watch.wait(3600.0)
        finally:
            watch.close()

    return events


def _connects(connect: Callable[P, Client]) -> Callable[P, AsyncClient]:
    """The constructor of an `AsyncClient` that takes what the one of `Client` does."""

    @functools.wraps(connect)
    def connects(*arguments: P.args, **options: P.kwargs) -> AsyncClient:
        return AsyncClient(connect(*arguments, **options))

    return connects


class AsyncSession(_Asynchronous[RemoteSession]):
    """See `RemoteSession`; one task may send while another receives."""

    send = _call(RemoteSession.send)
    resize = _call(RemoteSession.resize)
    receive = _call(RemoteSession.receive)

    async def close(self) -> None:
        """See `RemoteSession.close`."""
        self.wrapped.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncClient(_Asynchronous[Client]):
    """See the module. `watch` and `watch_object` give their events as they come."""

    def __init__(self, client: Client, *, most_calls: int = 64) -> None:
        """Of a client that is made, and closed, with this one."""
        super().__init__(client, asyncio.Semaphore(most_calls))

    @property
    def synchronous(self) -> Client:
        """The client that makes the calls."""
        return self.wrapped

    def twin(self) -> Client:
        """Another client of the same server, for a call that has to be hung up by itself."""
        return Client(self.wrapped.transport.twin())

    connect = staticmethod(_connects(Client.connect))

    create = _call(Client.create)
    get = _call(Client.get)
    record = _call(Client.record)
    list = _call(Client.list)
    update = _call(Client.update)
    apply = _call(Client.apply)
    patch_status = _call(Client.patch_status)
    delete = _call(Client.delete)
    watch = _stream(_events(Client.watch))
    watch_object = _stream(_events(Client.watch_object))
    reflect = _stream(Client.reflect)
    acquire = _call(Client.acquire)
    release = _call(Client.release)

    edit = _call(Client.edit)
    cancel = _call(Client.cancel)
    suspend = _call(Client.suspend)
    resume = _call(Client.resume)
    scale = _call(Client.scale)
    cordon = _call(Client.cordon)
    uncordon = _call(Client.uncordon)
    drain = _call(Client.drain)
    lost = _call(Client.lost)
    run = _call(Client.run)
    retry = _call(Client.retry)
    wait = _wait(Client.wait)
    wait_finished = _wait(Client.wait_finished)

    logs = _stream(Client.logs)
    exec = _session(Client.exec)
    forward = _session(Client.forward)
    tasks = _call(Client.tasks)
    events = _call(Client.events)
    attempts = _call(Client.attempts)
    metrics = _stream(Client.metrics)
    explain = _call(Client.explain)
    usage = _call(Client.usage)

    version = _call(Client.version)
    readiness = _call(Client.readiness)
    schema = _call(Client.schema)
    whoami = _call(Client.whoami)
    users = _call(Client.users)
    create_user = _call(Client.create_user)
    delete_user = _call(Client.delete_user)
    grant = _call(Client.grant)
    revoke = _call(Client.revoke)
    create_token = _call(Client.create_token)
    tokens = _call(Client.tokens)
    revoke_token = _call(Client.revoke_token)
    audit = _call(Client.audit)
    secrets = _call(Client.secrets)
    secret = _call(Client.secret)
    set_secret = _call(Client.set_secret)
    delete_secret = _call(Client.delete_secret)
    rotate_secret_key = _call(Client.rotate_secret_key)

    async def close(self) -> None:
        """See `Client.close`."""
        await _in_thread(self.wrapped.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def _in_thread(call: Callable[[], T]) -> T:
    """What the call returns or raises, from a daemon thread: one that hangs keeps no process alive."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if result.cancelled():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)  # pyright: ignore[reportArgumentType] - of the call

    def run() -> None:
        value, failure = None, None
        try:
            value = call()
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            failure = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, value, failure)

    threading.Thread(target=run, name="shoal call", daemon=True).start()
    return await result
