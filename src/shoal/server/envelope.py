"""The outermost layer of every request: size, version, failures.

A body that says it is too large is refused before a byte of it is read, and one that turns out so is
refused at the first byte too many. Every answer carries the server's version. A handler that fails
gives an error document, never a traceback and never a hanging client.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shoal import __version__
from shoal.client.wire import MAX_BODY_BYTES, TOO_LARGE, VERSION_HEADER
from shoal.objects.errors import Invalid
from shoal.server.problems import problem

__all__ = ["Envelope"]

_VERSION = (VERSION_HEADER.lower().encode(), __version__.encode())
_WRITE_SECONDS = 60.0
"""A client that reads nothing for so long is gone."""
_DRAIN_BYTES = 64 * 2**20
_DRAIN_SECONDS = 5.0


class _TooLarge(Exception):
    """The body has more bytes than a body may have."""


class _Unread(Exception):
    """The client does not take what it asked for."""


class Envelope:
    """ASGI middleware; see the module."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), _VERSION]
            try:
                async with asyncio.timeout(_WRITE_SECONDS):
                    await send(message)
            except TimeoutError as error:
                raise _Unread from error

        headers: dict[bytes, bytes] = dict(scope["headers"])
        try:
            if _length(headers) > MAX_BODY_BYTES:
                await _refuse_body(scope, receive, sending)
            elif _goes_on(scope):
                await self._app(scope, receive, sending)
            else:
                await self._app(scope, _limited(receive), sending)
        except _TooLarge:
            if not started:
                await _refuse_body(scope, receive, sending)
        except Exception as error:
            if started:
                raise  # uvicorn closes the connection
            await problem(error)(scope, receive, sending)


def _limited(receive: Receive) -> Receive:
    taken = 0

    async def receiving() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > MAX_BODY_BYTES:
            raise _TooLarge
        return message

    return receiving


async def _refuse_body(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer first; then take what the client still sends, for a while, or it would not get to read."""
    answer = problem(Invalid(f"the request is too large: {TOO_LARGE}"), 413)
    answer.headers["connection"] = "close"

    async def held_open(message: Message) -> None:
        if message["type"] == "http.response.body":
            await send({**message, "more_body": True})
            await _drain(receive)
            await send({"type": "http.response.body", "body": b""})
        else:
            await send(message)

    await answer(scope, receive, held_open)


async def _drain(receive: Receive) -> None:
    left = _DRAIN_BYTES
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while left > 0:
                message: Any = await receive()
                left -= len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _goes_on(scope: Scope) -> bool:
    """Whether the body is a stream that is taken as it comes, not a document."""
    return scope["method"] == "POST" and scope["path"].endswith("/exec")


def _length(headers: dict[bytes, bytes]) -> int:
    text = headers.get(b"content-length", b"0")
    return int(text) if text.isdigit() else 0
