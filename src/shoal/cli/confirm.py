"""Asking before something that is hard to take back."""

from __future__ import annotations

import sys

from shoal.cli.failures import Declined, Usage

__all__ = ["confirm"]


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal; returns when the answer is yes.

    Raises:
        Declined: the answer is no.
        Usage: there is no terminal to ask on, and `-y` was not given.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise Usage("there is no terminal to ask on", hint="pass -y to go ahead without asking")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Declined("nothing was changed")
