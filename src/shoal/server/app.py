"""The API: FastAPI over the parts of a server. The only asyncio in Shoal's control plane.

A handler waits only for threads (`Services.on_store`, `on_streams`) and for its own client. Errors
leave as problem documents, wherever they are raised. See docs/api.md, docs/openapi.json and
docs/design/server.md.
"""

from __future__ import annotations

from typing import cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from shoal import __version__
from shoal.objects.errors import Invalid, NotFound, Problem, ShoalError
from shoal.server import elastic
from shoal.server.middleware import ErrorAndLimitMiddleware, problem
from shoal.server.routers import (
    accounts,
    history_routes,
    metric_routes,
    objects,
    platform,
    running,
    secrets,
)
from shoal.server.services import Services


def create_app(services: Services) -> ASGIApp:
    """The application that uvicorn runs, over these parts."""
    app = api()
    app.state.services = services
    # the outermost layer of Starlette would answer failures in plain text: the middleware does it here
    outermost = cast("ServerErrorMiddleware", app.build_middleware_stack())
    app.middleware_stack = outermost.app
    return ErrorAndLimitMiddleware(app)


def api() -> FastAPI:
    """The routes, without parts behind them: enough for their OpenAPI document."""
    app = FastAPI(
        title="Shoal",
        version=__version__,
        summary="Elastic machine-learning jobs on one shared cluster",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    # the more particular paths first: the objects' routes match nearly everything
    for module in (
        accounts,
        secrets,
        platform,
        history_routes,
        metric_routes,
        running,
        elastic,
        objects,
    ):
        app.include_router(module.router)
    app.add_exception_handler(ShoalError, _shoal_error)
    app.add_exception_handler(RequestValidationError, _wrong_parameters)
    app.add_exception_handler(HTTPException, _no_route)
    return app


async def _shoal_error(request: Request, error: Exception) -> Response:
    return problem(error)


async def _wrong_parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = tuple(
        Problem(".".join(str(part) for part in wrong["loc"][1:]), wrong["msg"])
        for wrong in error.errors()
    )
    return problem(Invalid(f"the request has a wrong parameter: {problems[0]}", problems))


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        message = f"{request.method} is not possible at {request.url.path}"
        return problem(Invalid(message, hint="see docs/api.md"), 405)
    if error.status_code == 404:
        return problem(NotFound(f"there is nothing at {request.url.path}", hint="see docs/api.md"))
    return problem(ShoalError(str(error.detail)), error.status_code)
