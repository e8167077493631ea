"""What an explanation is."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Explanation"]


@dataclass(frozen=True)
class Explanation:
    """`sentence` says what is so, `remedy` what would change it (empty where nothing need)."""

    sentence: str
    remedy: str = ""
