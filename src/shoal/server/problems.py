"""Errors as answers: RFC 9457 problem documents that also are the error's own document.

Whatever a handler raises ends here, so a client can always rebuild the error by its code.
"""

from __future__ import annotations

import logging
import os
from http import HTTPStatus

import msgspec
from starlette.responses import Response

from shoal.objects.errors import ShoalError
from shoal.objects.quantities import QuantityError

__all__ = ["MEDIA_TYPE", "document_of", "problem"]

_LOG = logging.getLogger("shoal.server")

MEDIA_TYPE = "application/problem+json"


def problem(error: BaseException, status: int | None = None) -> Response:
    """The answer that tells of the error; `status` in place of the error's own."""
    known = _known(error)
    code = status or known.http_status
    body = msgspec.json.encode(document_of(known, code))
    headers = {"WWW-Authenticate": "Bearer"} if code == HTTPStatus.UNAUTHORIZED else None
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
    mark = os.urandom(4).hex()
    _LOG.error("failure %s", mark, exc_info=error)
    return ShoalError(
        f"the server failed to answer (failure {mark})",
        hint="the server's log says more: log/server.log under SHOAL_HOME",
    )


def _invalid(message: str) -> ShoalError:
    from shoal.objects.errors import Invalid

    return Invalid(message)
