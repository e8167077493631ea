"""Plain documents as lines for people: `quota.cpu: 4`, nested names joined by dots."""

from __future__ import annotations

from typing import Any, cast

__all__ = ["differences", "flattened"]


class _Missing:
    def __repr__(self) -> str:
        return "(none)"


MISSING = _Missing()
"""Stands where a field is not there."""


def flattened(document: Any, path: str = "") -> dict[str, Any]:
    """Path to value, for every leaf. Lists of plain values are one leaf; empty containers none."""
    if isinstance(document, dict) and document:
        entries = cast("dict[str, Any]", document)
        return {
            key: value
            for name, part in entries.items()
            for key, value in flattened(part, _joined(path, str(name))).items()
        }
    if isinstance(document, list) and any(isinstance(part, dict) for part in document):  # pyright: ignore[reportUnknownVariableType]
        items = cast("list[Any]", document)
        return {
            key: value
            for place, part in enumerate(items)
            for key, value in flattened(part, f"{path}[{_name_of(part, place)}]").items()
        }
    return {path: document} if document not in ({}, [], None) else {}


def differences(before: Any, after: Any) -> list[tuple[str, Any, Any]]:
    """What differs between two documents: path, old value, new value (MISSING where there is none)."""
    old, new = flattened(before), flattened(after)
    paths = dict.fromkeys([*new, *old])
    return [
        (path, old.get(path, MISSING), new.get(path, MISSING))
        for path in paths
        if old.get(path, MISSING) != new.get(path, MISSING)
    ]


def _joined(path: str, name: str) -> str:
    part = f'"{name}"' if "." in name else name
    return f"{path}.{part}" if path else part


def _name_of(part: Any, place: int) -> str:
    """An item of a list by its name, where it has one, so that a moved item is no change."""
    if isinstance(part, dict):
        name: Any = cast("dict[str, Any]", part).get("name")
        if isinstance(name, str):
            return name
    return str(place)
