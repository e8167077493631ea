"""Where the parts of a document stand in the text they were read from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.objects.paths import Path

__all__ = ["Document", "Place"]


@dataclass(slots=True)
class Place:
    """Line and column (from 1) of a value, or of the key it belongs to, with the places inside it.

    Shared where an alias repeats a value: the text that is wrong is the anchored one.
    """

    line: int
    column: int
    inside: dict[str | int, Place] | None = None


@dataclass(frozen=True)
class Document:
    """One document of a file: its plain value, and where its parts stand."""

    value: Any
    place: Place

    def locate(self, path: Path) -> tuple[int, int]:
        """Line and column of the path, or of the nearest part around it that is there."""
        place = self.place
        for part in path:
            inner = (place.inside or {}).get(part)
            if inner is None:
                break
            place = inner
        return place.line, place.column
