"""What runs: logs of a job's tasks, commands beside them, and the tasks themselves."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import AsyncIterator
from typing import Annotated, TypeVar

import msgspec
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from shoal.client.wire import FRAMES, frame, frames_in
from shoal.cluster.base import Session, Task
from shoal.objects import codec
from shoal.objects.errors import Invalid, NotFound, ShoalError, Unavailable
from shoal.objects.job import Job
from shoal.objects.nearest import did_you_mean
from shoal.server.log_stream import LogQuery, LogStream
from shoal.server.middleware import document_of, takes_stream
from shoal.server.reports import find_task, reports_of, require_task
from shoal.server.services import ActorNow, BlockingPool, Services, ServicesNow
from shoal.store.authorise import require

router = APIRouter(
    prefix="/api/v1/namespaces/{namespace}/jobs/{name}",
    tags=["running"],
    default_response_class=Response,
)

F = TypeVar("F")

_KEEP_ALIVE_SECONDS = 10.0
_SHORTEST_PAUSE_SECONDS = 0.03
_SIZE = struct.Struct("!HH")
_MOST_SESSIONS = 512
_MOST_PER_JOB = 128
_LARGEST_COMMAND_BYTES = 256 * 1024
_TAGS = {"out": b"O", "err": b"E"}


class _Positions(msgspec.Struct, frozen=True):
    positions: dict[str, int] = {}


@router.get("/logs", operation_id="logs")
@router.post("/logs", operation_id="resumeLogs")
async def logs(
    request: Request,
    services: ServicesNow,
    actor: ActorNow,
    namespace: str,
    name: str,
    role: str = "",
    index: Annotated[int | None, Query(ge=0)] = None,
    since: Annotated[float, Query(description="A stamp: seconds since 1970.")] = 0.0,
    tail: Annotated[int | None, Query(ge=0, description="Lines per task.")] = None,
    follow: bool = False,
    previous: Annotated[bool, Query(description="The incarnation before the newest.")] = False,
    incarnation: Annotated[int | None, Query(ge=1, description="Only this start of each.")] = None,
) -> Response:
    """What the job's tasks have written, as frames (docs/api.md): the newest incarnation of each index.
    `follow` goes on, later incarnations included, until the job has finished. A client that was cut
    off POSTs `{"positions": {"ROLE/INDEX/INCARNATION": OFFSET}}` to go on where it was."""
    require(actor, "logs", namespace, name)
    job = await services.on_store.call(services.store.get, Job, namespace, name, actor=actor)
    if (previous or incarnation is not None) and follow:
        raise Invalid("one incarnation ends with its task: it cannot be followed")
    if previous and incarnation is not None:
        raise Invalid("`previous` and `incarnation` exclude each other")
    await services.on_streams.call(require_task, job, role, index, services.logs)
    query = LogQuery(
        role=role,
        index=index,
        since=since,
        tail=tail,
        follow=follow,
        previous=previous,
        incarnation=incarnation,
        positions=await _positions(request),
    )
    stream = LogStream(
        job,
        query,
        logs=services.logs,
        store=services.store,
        tasks=services.known_tasks,
        clock=services.clock,
    )
    # what is there when the answer begins has been looked at: `--tail 0` counts from that moment
    first = await services.on_streams.call(stream.step)
    return StreamingResponse(
        _log_frames(services, stream, first, name, query), media_type=FRAMES, headers=_NO_STORE
    )


@router.post("/exec", operation_id="exec")
@takes_stream
async def exec_(
    request: Request, services: ServicesNow, actor: ActorNow, namespace: str, name: str
) -> Response:
    """Run a command beside a task, in its isolation. Body and answer are frames (docs/api.md) and go
    on at the same time; the body's first frame is the command."""
    require(actor, "exec", namespace, name)
    asked, rest = await read_first(request, Command, "command")
    if not asked.command:
        raise Invalid("there is no command to run")
    job = await services.on_store.call(services.store.get, Job, namespace, name, actor=actor)
    task = await services.on_store.call(find_task, services.tasks, job, asked.role, asked.index)
    key = task.spec.key
    session = await services.on_nodes.call(services.cluster.exec, key, asked.command, tty=asked.tty)
    services.audit.audited("exec", actor, job, job)
    return ExecAnswer(session, rest, job.metadata.uid)


@router.post("/port-forward", operation_id="portForward")
@takes_stream
async def port_forward(
    request: Request, services: ServicesNow, actor: ActorNow, namespace: str, name: str
) -> Response:
    """One connection to a TCP port of a task, in its network. Body and answer are frames (docs/api.md)
    and go on at the same time; the body's first frame names the port."""
    require(actor, "exec", namespace, name)
    asked, rest = await read_first(request, Forward, "port")
    job = await services.on_store.call(services.store.get, Job, namespace, name, actor=actor)
    task = await services.on_store.call(find_task, services.tasks, job, asked.role, asked.index)
    port = _port_of(job, task, asked.port)
    session = await services.on_nodes.call(services.cluster.forward, task.spec.key, port)
    services.audit.audited("port-forward", actor, job, job)
    return ExecAnswer(session, rest, job.metadata.uid)


@router.get("/tasks", operation_id="tasks")
async def tasks(services: ServicesNow, actor: ActorNow, namespace: str, name: str) -> Response:
    """The job's tasks on the nodes that answer, each with what it uses."""
    require(actor, "tasks", namespace, name)

    def work() -> bytes:
        job = services.store.get(Job, namespace, name, actor=actor)
        mine = services.tasks.of_job(job.metadata.uid)
        return codec.encode(reports_of(services.cluster, mine))

    return Response(await services.on_nodes.call(work), media_type="application/json")


async def _positions(request: Request) -> dict[str, int]:
    if request.method != "POST":
        return {}
    body = await request.body() or b"{}"
    return codec.from_body(body, _Positions, "the list of positions in logs").positions


async def _log_frames(
    services: Services, stream: LogStream, frames: list[bytes], name: str, query: LogQuery
) -> AsyncIterator[bytes]:
    signal = services.signals.new()
    loop = asyncio.get_running_loop()
    said_at = loop.time()
    try:
        watch = await services.on_streams.call(stream.watch)
        if watch is not None:
            watch.on_ready(signal.set)
        while not services.signals.stopping:
            if frames or loop.time() - said_at > _KEEP_ALIVE_SECONDS:
                said_at = loop.time()
                yield b"".join(frames) or frame(b"K")
            if stream.done:
                yield _end(stream, name, query)
                return
            if stream.pause_seconds > 0:
                await asyncio.sleep(_SHORTEST_PAUSE_SECONDS)
                await signal.wait(max(0.0, stream.pause_seconds - _SHORTEST_PAUSE_SECONDS))
            frames = await services.on_streams.call(stream.step)
    except ShoalError as error:
        yield frame(b"Z", msgspec.json.encode(document_of(error)))
    finally:
        stream.close()


def _end(stream: LogStream, name: str, query: LogQuery) -> bytes:
    if (query.previous or query.incarnation is not None) and not stream.found_logs:
        wanted = "an earlier start" if query.previous else f"a start {query.incarnation}"
        starts = "; ".join(f"{role} {numbers.text}" for role, numbers in sorted(stream.starts.items()))
        known = f"index=starts so far: {starts}" if starts else "none of its tasks has started"
        missing = NotFound(f"no task of job {name} has a log of {wanted}", hint=known)
        return frame(b"Z", msgspec.json.encode(document_of(missing)))
    return frame(b"Z", b"{}")


_NO_STORE = {"Cache-Control": "no-store"}


class Command(msgspec.Struct, frozen=True):
    """The first frame of the body."""

    command: tuple[str, ...]
    role: str = ""
    index: int = 0
    tty: bool = False


class Forward(msgspec.Struct, frozen=True):
    """The first frame of the body."""

    port: str
    """A number, or the name of a port of the role."""
    role: str = ""
    index: int = 0


async def read_first(request: Request, wanted: type[F], what: str) -> tuple[F, bytearray]:
    """The first frame of the body (tag C), and what came behind it. `what` names it in messages.

    Raises:
        Invalid: the body does not begin with one.
    """
    buffer = bytearray()
    while len(buffer) < _LARGEST_COMMAND_BYTES:
        message = await request.receive()
        buffer += message.get("body", b"")
        try:
            for tag, payload in frames_in(buffer):
                if tag != b"C":
                    raise Invalid(f"the body must begin with a {what} (frame C)")
                return msgspec.json.decode(payload, type=wanted), buffer
        except (ValueError, msgspec.MsgspecError) as error:
            raise Invalid(f"the body does not begin with a {what}: {error}") from error
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            break
    raise Invalid(f"the body does not begin with a {what}")


def _port_of(job: Job, task: Task, text: str) -> int:
    """The number that a task listens on for a port of its role, given by name or by the number that the
    job asks for; any other number is taken as it is."""
    role = next((each for each in job.spec.roles if each.name == task.spec.role), None)
    leased = task.endpoint.ports if task.endpoint is not None else {}
    declared = role.ports if role is not None else ()
    for port in declared:
        if text in (port.name, str(port.port or port.name)) and port.name in leased:
            return leased[port.name]
    if text.isdecimal() and 0 < int(text) < 65536:
        return int(text)
    names = [port.name for port in declared]
    raise Invalid(
        f"{text!r} is neither the number of a port nor one of {task.spec.role}'s"
        f"{did_you_mean(text, names)}",
        hint=f"its ports are {', '.join(names)}" if names else "write a number, such as 6006",
    )


class ExecAnswer(Response):
    """Pumps frames between a request and a session until the command has ended."""

    _open: Counter[str] = Counter()
    """Sessions by job."""

    def __init__(self, session: Session, rest: bytearray, job_uid: str) -> None:
        if self._open.total() >= _MOST_SESSIONS or self._open[job_uid] >= _MOST_PER_JOB:
            session.close()
            raise Unavailable("too many commands run beside tasks already", hint="try again later")
        super().__init__(media_type=FRAMES)
        del self.headers["content-length"]
        self._session = session
        self._buffer = rest
        self._job = job_uid

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the request; returns when the command has ended, the client has left, or its body has
        turned out wrong, and then the session is closed."""
        self._open[self._job] += 1
        threads = BlockingPool("exec", 3)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            # the head must be on its way before the first output, which may take its time
            await send({"type": "http.response.body", "body": frame(b"K"), "more_body": True})
            if error := await self._pump(threads, scope, receive, send):
                last = frame(b"X", msgspec.json.encode(document_of(error)))
                await send({"type": "http.response.body", "body": last, "more_body": True})
        finally:
            self._open[self._job] -= 1
            if not self._open[self._job]:
                del self._open[self._job]  # or every job that ever was would stay counted
            await asyncio.shield(threads.call(self._session.close))
            threads.close()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pump(
        self, threads: BlockingPool, scope: Scope, receive: Receive, send: Send
    ) -> BaseException | None:
        """Both directions until the first of them ends or fails; the failure, if it is one.

        The loss of the connection is waited for by itself: while the command does not read its input,
        nothing is received, and a hang-up would not be noticed."""
        lost: asyncio.Event = scope.get("state", {}).get("lost") or asyncio.Event()
        pumping = [
            asyncio.ensure_future(each)
            for each in (self._send_output(threads, send), self._feed(threads, receive), lost.wait())
        ]
        try:
            ended, _ = await asyncio.wait(pumping, return_when=asyncio.FIRST_COMPLETED)
            return next((error for each in ended if (error := each.exception())), None)
        finally:
            for each in pumping:
                each.cancel()
            await asyncio.gather(*pumping, return_exceptions=True)

    async def _send_output(self, threads: BlockingPool, send: Send) -> None:
        while True:
            receiving = asyncio.ensure_future(threads.call(self._session.receive))
            while not (await asyncio.wait([receiving], timeout=_KEEP_ALIVE_SECONDS))[0]:
                await send({"type": "http.response.body", "body": frame(b"K"), "more_body": True})
            try:
                kind, data = receiving.result()
            except ShoalError as error:
                last = frame(b"X", msgspec.json.encode(document_of(error)))
                await send({"type": "http.response.body", "body": last, "more_body": True})
                return
            if kind == "exit":
                data = msgspec.json.encode({"exitCode": int(data)})
            body = frame(_TAGS.get(kind, b"X"), data)
            await send({"type": "http.response.body", "body": body, "more_body": True})
            if kind == "exit":
                return

    async def _feed(self, threads: BlockingPool, receive: Receive) -> None:
        """Passes input on; returns when the client hangs up.

        Raises:
            Invalid: the body is not made of frames.
        """
        while True:
            try:
                complete = list(frames_in(self._buffer))
            except ValueError as error:
                raise Invalid(f"the body is not made of frames: {error}") from error
            for tag, payload in complete:
                if tag == b"I":
                    await threads.call(self._session.send, payload)
                elif tag == b"R" and len(payload) == _SIZE.size:
                    await threads.call(self._session.resize, *_SIZE.unpack(payload))
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            self._buffer += message.get("body", b"")
            if not message.get("more_body", False):
                await threads.call(self._session.send, b"")
                # no more input; only the connection's end is still of interest
                await receive()
                return
