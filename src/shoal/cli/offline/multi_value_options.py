"""Options of the commands that compare policies: several values after one option (`--policy fifo easy`
is `--policy fifo --policy easy`), files to read, and which policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from shoal.cli.failures import Usage
from shoal.cli.options import listed_option

F = TypeVar("F", bound=Callable[..., Any])


def path_option(*names: str, metavar: str, **attributes: Any) -> Callable[[F], F]:
    """Add an option that takes a file or a folder; the reader reports what is wrong with it."""
    return click.option(*names, type=click.Path(path_type=Path), metavar=metavar, **attributes)


def policy_option(of: str, default: str) -> Callable[[F], F]:
    """Add `--policy NAME...`, as `policies`: names of the mapping `of`; `default` in words."""
    text = f"{default} by default; one or more of"
    return listed_option("--policy", "policies", of=of, multiple=True, metavar="NAME...", help=text)


def chosen(policies: Iterable[str], known: Mapping[str, Any], unless: Iterable[str]) -> tuple[str, ...]:
    """The policies named, each once; those of `unless` where none is. Raises Usage for one that is not
    `known`."""
    names = tuple(dict.fromkeys(policies)) or tuple(unless)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise Usage(f"there is no policy {unknown[0]!r}", hint=f"there are {', '.join(known)}")
    return names


def spread(words: Iterable[str], options: frozenset[str]) -> list[str]:
    """Repeat the option before each word that follows it, up to the next option."""
    result: list[str] = []
    current = ""
    fresh = False
    for word in words:
        if word.startswith("-") and word != "-":
            current, fresh = (word, True) if word in options else ("", False)
            result.append(word)
            continue
        if current and not fresh:
            result.append(current)
        fresh = False
        result.append(word)
    return result
