"""The way to the server that an invocation means."""

from __future__ import annotations

from shoal.cli.settings import Settings
from shoal.client import Client

__all__ = ["connect"]


def connect(settings: Settings, *, timeout_seconds: float = 30.0, check_version: bool = True) -> Client:
    """A client; nothing is sent before its first call.

    Raises:
        NotFound: no such context.
        Invalid: the context is wrong.
    """
    if settings.remote:
        context = settings.context
        return Client.connect(
            url=context.url,
            token=context.token,
            timeout_seconds=timeout_seconds,
            check_version=check_version,
        )
    return Client.connect(settings.home, timeout_seconds=timeout_seconds, check_version=check_version)
