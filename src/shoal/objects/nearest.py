"""The nearest known name to a mistyped one, for error messages."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 100
"""Characters of a word that may be a misspelling."""


def nearest(word: str, known: Iterable[str]) -> str:
    """The known name most like `word`, compared without case; empty when none is near."""
    by_lower = {name.lower(): name for name in known}
    lower = word.lower()
    if lower in by_lower:
        return by_lower[lower]
    if len(word) > _LONGEST:
        return ""
    from difflib import get_close_matches  # only where something is misspelt: 1 ms of start-up

    found = get_close_matches(lower, by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean NAME?`, or nothing when no known name is near."""
    name = nearest(word, known)
    return f"; did you mean {name}?" if name else ""
