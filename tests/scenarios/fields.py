"""Which test shows which field's effect, and whether it wrote that field at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from shoal.objects.kinds import Kind

__all__ = ["SHOWN", "has", "shows", "unwritten"]

T = TypeVar("T", bound=Callable[..., Any])

SHOWN: dict[str, set[str]] = {}
"""Kind to the fields that some test has claimed to show."""


def shows(kind: Kind, *paths: str) -> Callable[[T], T]:
    """Marks a test that shows the effect of these fields of the kind, spelt as `field_paths` does."""

    def mark(test: T) -> T:
        claims: list[tuple[Kind, str]] = test.__dict__.setdefault("shows", [])
        claims += [(kind, path) for path in paths]
        SHOWN.setdefault(kind.name, set()).update(paths)
        return test

    return mark


def unwritten(
    claims: Iterable[tuple[Kind, str]], written: Iterable[tuple[Kind, Any]]
) -> list[tuple[str, str]]:
    """The claims whose field no written document holds."""
    documents = list(written)
    return [
        (kind.name, path)
        for kind, path in claims
        if not any(kind is of and has(document, path) for of, document in documents)
    ]


def has(document: Any, path: str) -> bool:
    """Whether a document holds the field: `[]` stands for any item of a list."""
    name, _, rest = path.partition(".")
    inner = document.get(name.removesuffix("[]")) if isinstance(document, dict) else None
    if not rest:
        return inner is not None
    return any(has(item, rest) for item in inner or ()) if name.endswith("[]") else has(inner, rest)
