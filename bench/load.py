"""A server under a crowd: 2,000 pending jobs, 100 watchers, 100 clients that each ask once a second."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from pathlib import Path

from bench.home import fresh_home, server_pid
from bench.processes import SHOAL, memory_mb, wall_ms
from bench.row import Row, p50, p95
from shoal.client import Client
from shoal.objects.job import Job, JobSpec, Resources, Role
from shoal.objects.meta import Metadata
from shoal.objects.quantities import CpuMillis
from shoal.store.base import SYSTEM

__all__ = ["rows"]

_JOBS = 2_000
_WATCHERS = 100
_CLIENTS = 100
_SECONDS = 20.0
_JOBS_PATH = "/api/v1/namespaces/default/jobs"


def rows() -> list[Row]:
    """Explain, a list of 100, the list of all jobs and memory, all under the same load."""
    with fresh_home() as home:
        wall_ms([SHOAL, "up", "--cpu", "2"], home)
        with Client.connect(home=home["SHOAL_HOME"]) as client:
            client.create(_job("blocker", cpu=2000), actor=SYSTEM)
            for number in range(_JOBS):
                client.create(_job(f"job-{number:04}"), actor=SYSTEM)
        time.sleep(10)  # the scheduler says why each of them waits: the steady state is measured
        socket = Path(home["SHOAL_HOME"], "api.sock")
        times, events, resident = asyncio.run(_crowd(socket, server_pid(home)))
    load = f"{_WATCHERS} watchers (each {events} events), {_CLIENTS} clients, {_SECONDS:g} s"
    return [
        _row("explain a job", 500, times["explain"], load),
        _row("list of 100 jobs", 300, times["page"], load),
        _row(f"{_WATCHERS} watches of {_JOBS:,} jobs filled", float("nan"), times["watch"], load),
        _row(f"list of all {_JOBS:,} jobs", float("nan"), times["all"], load),
        Row("server under this load", 300, resident * 1e6 / 2**20, "MiB", "the most", load),
    ]


def _row(what: str, goal: float, times: list[float], load: str) -> Row:
    milliseconds = [each * 1000 for each in times]
    spread = f"p95 {p95(milliseconds):.0f}, {len(times)} requests"
    return Row(what, goal, p50(milliseconds), "ms", spread, load)


def _job(name: str, cpu: int = 1000) -> Job:
    role = Role(command=("sleep", "100000"), resources=Resources(cpu=CpuMillis(cpu)))
    return Job(metadata=Metadata(name=name), spec=JobSpec(roles=(role,)))


async def _crowd(socket: Path, server: int) -> tuple[dict[str, list[float]], int, float]:
    """Seconds of each kind of request, the events of one watcher, and the server's memory in MB."""
    times: dict[str, list[float]] = {"explain": [], "page": [], "all": []}
    events = [0] * _WATCHERS
    memory: list[float] = []
    begun = time.monotonic()
    watchers = [asyncio.create_task(_watch(socket, events, at)) for at in range(_WATCHERS)]

    async def sample() -> None:
        while True:
            memory.append(memory_mb(server))
            await asyncio.sleep(0.2)

    sampling = asyncio.create_task(sample())
    while min(events) < _JOBS:  # noqa: ASYNC110 - each watch begins with all jobs; they only count
        await asyncio.sleep(0.1)
    times["watch"] = [time.monotonic() - begun]
    ending = time.monotonic() + _SECONDS
    await asyncio.gather(
        _label(socket, ending),
        _read_all(socket, ending, times["all"]),
        *(_ask(socket, ending, at, times) for at in range(_CLIENTS)),
    )
    for task in (sampling, *watchers):
        task.cancel()
    await asyncio.gather(sampling, *watchers, return_exceptions=True)
    return times, min(events), max(memory)


async def _watch(socket: Path, events: list[int], at: int) -> None:
    reader, writer = await asyncio.open_unix_connection(os.fspath(socket), limit=2**24)
    writer.write(_request("GET", f"{_JOBS_PATH}?watch=1"))
    while line := await reader.readline():
        events[at] += line.startswith((b"event: Added", b"event: Modified"))


async def _ask(socket: Path, ending: float, at: int, times: dict[str, list[float]]) -> None:
    """Explain and list in turn, once a second, the clients spread over the second."""
    await asyncio.sleep(at / _CLIENTS)
    reader, writer = await asyncio.open_unix_connection(os.fspath(socket), limit=2**24)
    for number in itertools.count(at):
        begun = time.monotonic()
        if begun >= ending:
            break
        name = f"job-{(number * 37) % _JOBS:04}"
        what = "page" if number % 2 else "explain"
        path = f"{_JOBS_PATH}?limit=100" if number % 2 else f"{_JOBS_PATH}/{name}/explain"
        writer.write(_request("GET", path))
        await _answer(reader)
        times[what].append(time.monotonic() - begun)
        await asyncio.sleep(max(0.0, begun + 1.0 - time.monotonic()))
    writer.close()


async def _read_all(socket: Path, ending: float, times: list[float]) -> None:
    reader, writer = await asyncio.open_unix_connection(os.fspath(socket), limit=2**24)
    while (begun := time.monotonic()) < ending:
        writer.write(_request("GET", _JOBS_PATH))
        await _answer(reader)
        times.append(time.monotonic() - begun)
        await asyncio.sleep(1.0)
    writer.close()


async def _label(socket: Path, ending: float) -> None:
    """A change now and then, which every watcher is sent."""
    reader, writer = await asyncio.open_unix_connection(os.fspath(socket), limit=2**24)
    for number in itertools.count():
        if time.monotonic() >= ending:
            break
        body = _CHANGED % (number, number)
        writer.write(_request("POST", _JOBS_PATH, body))
        await _answer(reader)
        await asyncio.sleep(0.5)
    writer.close()


_CHANGED = (
    b'{"apiVersion":"shoal.dev/v1alpha1","kind":"Job","metadata":{"name":"new-%d","labels":{"n":"%d"}},'
    b'"spec":{"roles":[{"name":"worker","command":["true"],"resources":{"cpu":1}}]}}'
)


def _request(method: str, path: str, body: bytes = b"") -> bytes:
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nHost: shoal\r\n{length}\r\n".encode() + body


async def _answer(reader: asyncio.StreamReader) -> bytes:
    """The body of an answer that is no error."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(None, 2)[1])
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        body = b""
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    else:
        length = int(lower.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        body = await reader.readexactly(length)
    if status >= 400:
        raise RuntimeError(f"the server answered {status}: {body.decode()}")
    return body
