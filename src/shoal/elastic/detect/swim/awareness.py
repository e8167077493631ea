"""How well this member itself does (Lifeguard): the worse, the longer it waits before blaming others."""

from __future__ import annotations

__all__ = ["Awareness"]


class Awareness:
    """A score from 0 (healthy) to `limit` - 1; times are multiplied by score + 1."""

    def __init__(self, limit: int, score: int = 0) -> None:
        self._limit = limit
        self.score = score

    def apply(self, delta: int) -> None:
        """Something went well (negative) or badly here."""
        self.score = max(0, min(self._limit - 1, self.score + delta))

    def scale(self, seconds: float) -> float:
        """A time for others, seen from here."""
        return seconds * (self.score + 1)
