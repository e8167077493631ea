"""Options that take several words: `--policy fifo easy` is `--policy fifo --policy easy`."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["spread"]


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
