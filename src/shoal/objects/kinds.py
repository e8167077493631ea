"""The registry of kinds: what each is called, whether it lives in a namespace, and its columns.

A new kind is one line here and one module beside this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoal.objects.meta import Object

__all__ = ["KINDS", "Column", "Kind", "kind_named"]


@dataclass(frozen=True)
class Column:
    """One column of a kind's table: `value(object, now)` gives its text."""

    title: str
    value: Callable[[Any, float], str]
    wide: bool = False
    """True: shown with `-o wide` only."""


@dataclass(frozen=True)
class Kind:
    """One kind: `name` is singular CamelCase as on the wire, `plural` its path and CLI name."""

    name: str
    plural: str
    aliases: tuple[str, ...]
    namespaced: bool
    struct: type[Object]
    columns: tuple[Column, ...]
    status_writers: dict[str, tuple[str, ...]]
    """Writer to the status fields (wire names) that it owns; `*` is every field no other owns."""


def kind_named(word: str) -> Kind:
    """The kind that a person or a path means by `word`: its name, plural or an alias, any case.

    Raises:
        NotFound: no kind is called so; the hint names the nearest.
    """
    raise NotImplementedError(word)


KINDS: dict[str, Kind] = {}
