"""Live names for the shell's completion: what the server lists, quickly or not at all.

Completion must never hang a shell nor write into the line being typed, so it has 300 ms in all (or
`$SHOAL_COMPLETION_SECONDS`): a timer ends the process, and every error means "no suggestions".
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import click

from shoal.cli.settings import Settings

MAX_SECONDS = 0.3
_MOST = 500

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def complete_names(kind: str, *, prefixed: bool = True) -> Completer:
    """A completer of the names of one kind: `job/x`, or plain names when typed so."""

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        if "/" in incomplete:
            return _prefixed(context, incomplete)
        plain = _names(context, kind, incomplete)
        return [f"{kind}/{name}" for name in plain] if prefixed and not incomplete else plain

    return complete


def complete_kinds_and_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """A completer for `get`: kinds first, then names of the kind that was given."""
    if "/" in incomplete:
        return _prefixed(context, incomplete)
    from shoal.objects.kinds import KINDS

    given: Any = context.params.get(parameter.name or "") or ()
    if given and "/" not in given[0]:
        return _names(context, given[0], incomplete)
    words = [word for kind in KINDS.values() for word in (kind.plural, f"{kind.name.lower()}/")]
    return [word for word in words if word.startswith(incomplete)]


def _prefixed(context: click.Context, incomplete: str) -> list[str]:
    prefix, _, begun = incomplete.partition("/")
    return [f"{prefix}/{name}" for name in _names(context, prefix, begun)]


def _names(context: click.Context, word: str, begun: str) -> list[str]:
    settings = context.find_object(Settings) or Settings()
    try:
        _end_in_time()
        from shoal.cli.connection import connect
        from shoal.objects.kinds import kind_named

        kind = kind_named(word)
        namespace = settings.namespace if kind.namespaced else ""
        with connect(settings) as client:
            page = client.list(kind, namespace=namespace, limit=_MOST)
        names = [record.identity.name for record in page.records]
    except Exception:  # noqa: BLE001  whatever is wrong, a shell's prompt is no place to say so
        return []
    return [name for name in names if name.startswith(begun)]


def _end_in_time() -> None:
    """Leave, without a word, once the time since this process began is used up."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        os._exit(0)

    signal.signal(signal.SIGALRM, leave)
    seconds = float(os.environ.get("SHOAL_COMPLETION_SECONDS", MAX_SECONDS))
    signal.setitimer(signal.ITIMER_REAL, max(0.05, seconds - time.process_time()))
