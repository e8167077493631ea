"""The way to the server that an invocation means."""

from __future__ import annotations

from typing import TypedDict

from shoal.cli.output import say
from shoal.cli.settings import Settings
from shoal.client import Client


def connect(settings: Settings, *, timeout_seconds: float = 30.0, check_version: bool = True) -> Client:
    """A client; nothing is sent before its first call.

    Raises:
        NotFound: no such context.
        Invalid: the context is wrong.
    """
    options: _Options = {"timeout_seconds": timeout_seconds, "check_version": check_version}
    if settings.remote:
        context = settings.context
        client = Client.connect(
            url=context.url, token=context.token, fingerprint=context.fingerprint, **options
        )
    else:
        client = Client.connect(settings.home, **options)
    client.transport.on_warning = _Once()
    return client


class _Options(TypedDict):
    timeout_seconds: float
    check_version: bool


class _Once:
    """Says each of the server's warnings once: what is shown before it is done is said again when it is
    done."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            say(f"warning: {sentence}")
