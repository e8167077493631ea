"""The outermost layer of every request: size, version, failures.

A body that says it is too large is refused before a byte of it is read, and one that turns out so is
refused at the first byte too many. Every answer carries the server's version. A handler that fails
gives an error document, never a traceback and never a hanging client.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shoal import __version__, metrics
from shoal.client.wire import MAX_BODY_BYTES, TOO_LARGE, VERSION_HEADER
from shoal.objects.errors import Invalid, ShoalError
from shoal.objects.quantities import QuantityError

H = TypeVar("H", bound=Callable[..., object])

_LOG = logging.getLogger("shoal.server")

MEDIA_TYPE = "application/problem+json"

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_HEADERS: dict[int, dict[str, str]] = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"},
    HTTPStatus.TOO_MANY_REQUESTS: {"Retry-After": "1"},
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "1"},
}
_STREAM = "takes_stream"
_VERSION = (VERSION_HEADER.lower().encode(), __version__.encode())


class _TooLarge(Invalid):
    """The body has more bytes than a body may have. What still comes of it is dropped."""

    http_status = 413

    def __init__(self) -> None:
        super().__init__(f"the request is too large: {TOO_LARGE}")


class ErrorAndLimitMiddleware:
    """ASGI middleware; see the module."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, begun = False, time.monotonic()

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                _count(scope, message["status"], time.monotonic() - begun)
                message["headers"] = [*message.get("headers", ()), _VERSION]
            await send(message)

        headers: dict[bytes, bytes] = dict(scope["headers"])
        try:
            if _length(headers) > MAX_BODY_BYTES:
                await problem(_TooLarge())(scope, receive, sending)
            else:
                await self._app(scope, _limited(scope, receive), sending)
        except ClientDisconnect:
            _LOG.debug(
                "%s %s: the client left before its body was complete", scope["method"], scope["path"]
            )
        except Exception as error:
            if started:
                raise  # uvicorn says so in the log, and closes the connection
            await problem(error)(scope, receive, sending)


def _count(scope: Scope, status: int, seconds: float) -> None:
    route = getattr(scope.get("route"), "path", "none")  # the template, not the path: it names objects
    method = scope["method"] if scope["method"] in _METHODS else "other"
    metrics.HTTP_REQUESTS.labels(route, method, str(status)).inc()
    metrics.HTTP_SECONDS.labels(route, method).observe(seconds)


def _limited(scope: Scope, receive: Receive) -> Receive:
    taken = 0

    async def receiving() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > MAX_BODY_BYTES and not is_stream(scope):
            raise _TooLarge
        return message

    return receiving


def takes_stream(handler: H) -> H:
    """Declare that the body of a handler's requests is a stream, which is taken as it comes: it has no
    limit of size, and none of time once the answer has begun."""
    vars(handler)[_STREAM] = True
    return handler


def is_stream(scope: Mapping[str, Any]) -> bool:
    """Whether the route of a request takes a stream (`takes_stream`); False before it is known."""
    return getattr(scope.get("endpoint"), _STREAM, False)


def _length(headers: dict[bytes, bytes]) -> int:
    text = headers.get(b"content-length", b"0")
    return int(text) if text.isdigit() else 0


def problem(error: BaseException, status: int | None = None) -> Response:
    """The problem document of the error; `status` in place of the error's own."""
    known = _known(error)
    code = status or known.http_status
    body = msgspec.json.encode(document_of(known, code))
    headers = _HEADERS.get(code)
    return Response(body, code, headers, MEDIA_TYPE)


def document_of(error: BaseException, status: int | None = None) -> dict[str, object]:
    """The problem document of an error."""
    known = _known(error)
    return {
        "type": f"urn:shoal:problem:{known.code}",
        "title": known.code,
        "status": status or known.http_status,
        "detail": known.message,
        **known.document(),
    }


def _known(error: BaseException) -> ShoalError:
    if isinstance(error, ShoalError):
        return error
    if isinstance(error, QuantityError):
        return _invalid(str(error))
    if isinstance(error, UnicodeDecodeError):  # of the body: what a server stores is UTF-8
        return _invalid(f"the request is not UTF-8: {error.reason} at byte {error.start}")
    mark = os.urandom(4).hex()
    _LOG.error("failure %s", mark, exc_info=error)
    return ShoalError(
        f"the server failed to answer (failure {mark})",
        hint="the server's log says more: log/server.log under SHOAL_HOME",
    )


def _invalid(message: str) -> ShoalError:
    return Invalid(message)
