"""A command beside a task, over one request: the body is its input while the answer carries its output.

The session is synchronous, so each has threads of its own: one that receives, one that sends, and one
that ends it when the client hangs up.
What a client does not read holds up its own command and nothing else.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from contextlib import suppress

import msgspec
from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from shoal.client.wire import FRAMES, frame, frames_in
from shoal.cluster.base import Session
from shoal.objects.errors import Invalid, ShoalError, Unavailable
from shoal.server.concurrency import BlockingPool
from shoal.server.middleware import document_of

__all__ = ["Command", "ExecAnswer", "read_command"]

_SIZE = struct.Struct("!HH")
_MOST_SESSIONS = 512
_MOST_PER_JOB = 128
_KEEP_ALIVE_SECONDS = 10.0
_LARGEST_COMMAND_BYTES = 256 * 1024
_TAGS = {"out": b"O", "err": b"E"}


class Command(msgspec.Struct, frozen=True):
    """The first frame of the body."""

    command: tuple[str, ...]
    role: str = ""
    index: int = 0
    tty: bool = False


async def read_command(request: Request) -> tuple[Command, bytearray]:
    """The command, and what came behind it.

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
                    raise Invalid("the body must begin with a command (frame C)")
                asked = msgspec.json.decode(payload, type=Command)
                if not asked.command:
                    raise Invalid("there is no command to run")
                return asked, buffer
        except (ValueError, msgspec.MsgspecError) as error:
            raise Invalid(f"the body does not begin with a command: {error}") from error
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            break
    raise Invalid("the body does not begin with a command")


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
        """Handle the request; returns when the command has ended or the client has left."""
        self._open[self._job] += 1
        threads = BlockingPool("exec", 3)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            # the head must be on its way before the first output, which may take its time
            await send({"type": "http.response.body", "body": frame(b"K"), "more_body": True})
            feeding = asyncio.create_task(self._feed(threads, receive))
            try:
                await self._tell(threads, send)
            finally:
                feeding.cancel()
                with suppress(asyncio.CancelledError):
                    await feeding
        finally:
            self._open[self._job] -= 1
            if not self._open[self._job]:
                del self._open[self._job]  # or every job that ever was would stay counted
            await asyncio.shield(threads.call(self._session.close))
            threads.close()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _tell(self, threads: BlockingPool, send: Send) -> None:
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
        """Ends the command when the client hangs up."""
        while True:
            for tag, payload in frames_in(self._buffer):
                if tag == b"I":
                    await threads.call(self._session.send, payload)
                elif tag == b"R" and len(payload) == _SIZE.size:
                    await threads.call(self._session.resize, *_SIZE.unpack(payload))
            message = await receive()
            if message["type"] == "http.disconnect":
                await threads.call(self._session.close)
                return
            self._buffer += message.get("body", b"")
            if not message.get("more_body", False):
                await threads.call(self._session.send, b"")
                # no more input; only the connection's end is still of interest
                await receive()
                await threads.call(self._session.close)
                return
