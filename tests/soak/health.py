"""What processes hold while they live: memory of their own, descriptors, threads, listening sockets."""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Health", "Life", "look"]

WARM_SECONDS = 180.0
"""Of a long life are left out, of a short one a quarter: a worker grows by 10 MiB in its first fifty
changes (first allocations, threads' arenas, modules that only rank 0 needs), then by nothing."""
SHORT_SECONDS = 480.0
MOST_MIB_OF_SHORT = 24.0
MOST_MIB = 6.0
MOST_MIB_AN_HOUR = 32.0
"""A long-lived process may grow by the larger of the two over the time it is watched. 6 MiB is what it
differs from itself with the number of its peers and with what malloc gives back; at a blow each five
seconds 32 MiB an hour is 45 KiB for each: less than a forgotten group, thread's stack or state."""
MOST_MORE = 12
"""Descriptors, threads and listeners: the middle of the last quarter may lie above that of the first by
so many. A view of four has that many more connections than one of one."""


@dataclass(frozen=True)
class Held:
    """At one moment."""

    at: float
    own_mib: float
    descriptors: int
    threads: int
    listeners: int


@dataclass
class Life:
    """One process: who it is, and what it held, the oldest first."""

    who: str
    pid: int
    held: list[Held] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """So long it was watched, without its warm-up."""
        warm = self.warm
        return warm[-1].at - warm[0].at if warm else 0.0

    @property
    def warm(self) -> list[Held]:
        """After the warm-up."""
        first = self.held[0].at + (self._all_seconds / 4 if self._is_short else WARM_SECONDS)
        return [each for each in self.held if each.at >= first]

    def mib_an_hour(self) -> float:
        """The slope of its memory: the median over all pairs of moments."""
        warm = self.warm
        warm = warm[:: -(-len(warm) // 200)]
        slopes = [
            (b.own_mib - a.own_mib) / (b.at - a.at) for n, a in enumerate(warm) for b in warm[n + 1 :]
        ]
        return statistics.median(slopes) * 3600.0 if slopes else 0.0

    def more(self, what: str) -> float:
        """How many more it has at the end than at the beginning."""
        counts = [getattr(each, what) for each in self.warm]
        quarter = max(1, len(counts) // 4)
        return statistics.median(counts[-quarter:]) - statistics.median(counts[:quarter])

    def problems(self) -> list[str]:
        """What grew."""
        grown = self.mib_an_hour() * self.seconds / 3600.0
        most = max(MOST_MIB, MOST_MIB_AN_HOUR * self.seconds / 3600.0)
        most = MOST_MIB_OF_SHORT if self._is_short else most
        found = []
        if grown > most:
            found.append(f"{self.who} ({self.pid}) grew by {grown:.1f} MiB in {self.seconds:.0f} s")
        counted = {what: self.more(what) for what in ("descriptors", "threads", "listeners")}
        return found + [
            f"{self.who} ({self.pid}) has {more:g} more {what} than at first"
            for what, more in counted.items()
            if more > MOST_MORE
        ]

    @property
    def _all_seconds(self) -> float:
        return self.held[-1].at - self.held[0].at

    @property
    def _is_short(self) -> bool:
        return self._all_seconds < SHORT_SECONDS


@dataclass
class Health:
    """Of all processes that were seen."""

    lives: dict[int, Life] = field(default_factory=dict)

    def note(self, who: str, pid: int, now: float) -> None:
        """Look at one process; nothing if it has gone."""
        held = look(pid, now)
        if held is not None:
            self.lives.setdefault(pid, Life(who, pid)).held.append(held)

    def longest(self, seconds: float) -> list[Life]:
        """Those that were watched for at least so long, the longest first."""
        lives = [life for life in self.lives.values() if life.seconds >= seconds]
        return sorted(lives, key=lambda life: -life.seconds)


def look(pid: int, now: float) -> Held | None:
    """What a process holds now; None when it has gone."""
    folder = Path(f"/proc/{pid}")
    try:
        status = dict(
            line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line
        )
        own = sum(int(status[name].split()[0]) for name in ("RssAnon", "RssShmem"))
        links = [_link(each) for each in (folder / "fd").iterdir()]
        listening = _listening(folder / "net")
    except (FileNotFoundError, ProcessLookupError, KeyError):  # KeyError: it has ended, unreaped
        return None
    listeners = sum(link in listening for link in links)
    return Held(now, own / 1024.0, len(links), int(status["Threads"]), listeners)


def _link(path: Path) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - as it stands: it is no path
    except FileNotFoundError:
        return ""  # closed meanwhile


def _listening(net: Path) -> set[str]:
    lines = [line.split() for name in ("tcp", "tcp6") for line in (net / name).read_text().splitlines()]
    return {f"socket:[{words[9]}]" for words in lines if words[3] == "0A"}
