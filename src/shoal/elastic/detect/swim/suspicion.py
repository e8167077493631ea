"""How long one suspicion lasts: the more members confirm it by themselves, the shorter."""

from __future__ import annotations

import math

__all__ = ["Suspicion"]


class Suspicion:
    """A suspicion raised at `began` (monotonic) by `accuser`; lengths in seconds.

    Its length is max - log(c + 1) / log(k + 1) * (max - min), c being the number of distinct others that
    confirmed it and k the number wanted (Lifeguard, section IV-B); min when k is 0.
    """

    def __init__(self, accuser: str, began: float, shortest: float, longest: float, wanted: int) -> None:
        self._began = began
        self._shortest = shortest
        self._longest = longest
        self._wanted = wanted
        self._accusers = {accuser}
        self._postponed = 0.0

    @property
    def ends_at(self) -> float:
        """When the member is to be declared dead; may be past already."""
        if self._wanted < 1:
            return self._began + self._shortest + self._postponed
        share = math.log(len(self._accusers)) / math.log(self._wanted + 1)
        length = max(self._shortest, self._longest - share * (self._longest - self._shortest))
        return self._began + length + self._postponed

    def confirm(self, accuser: str) -> bool:
        """Another member suspects it, too; True when that is news worth passing on."""
        if len(self._accusers) > self._wanted or accuser in self._accusers:
            return False
        self._accusers.add(accuser)
        return True

    def postpone(self, seconds: float) -> None:
        """We were not awake for so long and could not have got a refutation."""
        self._postponed += seconds
