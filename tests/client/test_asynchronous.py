"""The client for asyncio against a real server."""

from __future__ import annotations

import asyncio
import doctest
import inspect
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from shoal.client import AsyncClient, Client, asynchronous
from shoal.history.base import LogKey
from shoal.objects.errors import NotFound, Unavailable
from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from shoal.store.base import SYSTEM
from tests.server.harness import LiveServer, a_job, eventually

_SYNCHRONOUS = {"close"}
"""Written by hand: they end the client."""


def _run(server: LiveServer, main: Callable[[AsyncClient], Coroutine[Any, Any, None]]) -> None:
    async def all_of_it() -> None:
        async with AsyncClient.connect(server.home.path) as shoal:
            await asyncio.wait_for(main(shoal), 30)

    asyncio.run(all_of_it())


def _hung_up() -> bool:
    return not any(thread.name.startswith(("shoal ", "watch ")) for thread in threading.enumerate())


def test_every_method_is_the_one_of_the_client_with_its_signature() -> None:
    names = {
        name
        for name, value in inspect.getmembers(Client)
        if not name.startswith("_") and callable(value) and name not in _SYNCHRONOUS
    }
    for name in sorted(names):
        mine, others = (inspect.signature(getattr(each, name)) for each in (AsyncClient, Client))
        assert mine == others, name
        assert getattr(AsyncClient, name).__doc__ == getattr(Client, name).__doc__
    assert {"run", "logs", "edit", "watch", "connect"} <= names


@pytest.mark.slow
def test_calls_are_awaited_and_errors_are_those_of_the_client(server: LiveServer) -> None:
    async def main(shoal: AsyncClient) -> None:
        made = await shoal.run("python train.py", name="train", workers=2, cpu="500m")
        assert made.spec.roles[0].replicas == 2
        await asyncio.gather(*(shoal.run("true", name=f"j{n}", cpu="100m") for n in range(80)))
        assert len((await shoal.list(Job)).records) == 81
        assert (await shoal.scale("default", "train", 3)).spec.roles[0].replicas == 3
        assert (await shoal.explain("Job", "default", "train")).phase == "Pending"
        with pytest.raises(NotFound, match="job default/none does not exist"):
            await shoal.get(Job, "default", "none")
        with pytest.raises(TypeError, match="worker"):
            await shoal.run("true", worker=2)  # pyright: ignore[reportCallIssue]

    _run(server, main)


def test_streams_come_as_they_are_written_and_hang_up_when_closed(server: LiveServer) -> None:
    async def main(shoal: AsyncClient) -> None:
        await shoal.create(a_job())
        seen = shoal.reflect("jobs")
        assert [(await anext(seen)).type for _ in range(2)] == ["Added", "Synced"]
        await shoal.suspend("default", "train")
        change = await anext(seen)
        assert change.record is not None
        assert (change.type, change.record.object.spec.suspend) == ("Modified", True)
        await seen.aclose()
        page = await shoal.list(JOB)
        events = shoal.watch(JOB, version=page.version)
        await shoal.delete(Job, "default", "train")
        assert (await anext(events)).type == "Deleted"
        await events.aclose()

    _run(server, main)
    eventually(_hung_up)


@pytest.mark.slow
def test_a_cancelled_wait_hangs_up(server: LiveServer) -> None:
    async def main(shoal: AsyncClient) -> None:
        job = await shoal.create(a_job())
        waits = asyncio.create_task(shoal.wait_finished("default", "train"))
        others = asyncio.create_task(shoal.wait_finished("default", "train", timeout_seconds=0.2))
        with pytest.raises(TimeoutError):
            await others
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        ends = asyncio.create_task(shoal.wait_finished("default", "train"))
        server.store.patch_status(
            JOB, "default", "train", actor=SYSTEM, writer="job", uid=job.metadata.uid,
            counter=0, fields={"phase": "Cancelled"},
        )  # fmt: skip
        assert (await ends).status.phase == "Cancelled"

    _run(server, main)
    eventually(_hung_up)


def test_a_log_that_is_followed_hangs_up_with_its_client(server: LiveServer) -> None:
    """The logs of a task that writes nothing more: only hanging up ends the thread that reads them."""
    job = server.store.create(a_job(), actor=SYSTEM)
    meta = job.metadata
    key = LogKey(
        namespace=meta.namespace, job=meta.name, job_uid=meta.uid, role="worker", index=0, incarnation=1
    )
    server.logs.append(key, time.time(), b"first\n")

    async def main(shoal: AsyncClient) -> None:
        records = shoal.logs("default", "train", follow=True)
        assert (await anext(records)).data == b"first\n"
        waits = asyncio.ensure_future(anext(records))
        await asyncio.sleep(0.05)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits

    _run(server, main)
    eventually(_hung_up)


def test_a_server_that_is_not_there(tmp_path: Any) -> None:
    async def main() -> None:
        async with AsyncClient.connect(tmp_path) as shoal:
            with pytest.raises(Unavailable, match="no server answers"):
                await shoal.version()
            with pytest.raises(Unavailable, match="no server answers"):
                async for _ in shoal.reflect("jobs"):
                    pass

    asyncio.run(main())


def test_the_examples_of_the_docstring_are_true(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_HOME", str(server.home.path))
    monkeypatch.delenv("SHOAL_API", raising=False)
    assert doctest.testmod(asynchronous)[0] == 0
