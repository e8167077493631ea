"""Intervals, multipliers and limits of the detector, and how they follow from the number of members."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """All times in seconds.

    With the defaults a silent member is suspected after about 1.6 probe intervals and declared dead 0.4
    to 0.8 s later at 64 members.
    """

    probe_interval: float = 0.2
    probe_timeout: float = 0.1
    """After that without an answer to a direct probe others are asked to probe."""
    indirect_probes: int = 3
    """How many others."""
    stream_probe: bool = True
    """Probe over TCP, too, when the direct probe was not answered: datagrams may be what is lost."""
    nacks: bool = True
    """A member that probes for another reports a missing answer: its own silence then means that we
    are slow."""
    suspicion_mult: float = 4.0
    """The shortest suspicion, in probe intervals times max(1, log10 n)."""
    suspicion_max_mult: float = 2.0
    """The longest, in multiples of the shortest."""
    awareness_max: int = 8
    """The score stays below this; with 1 this member never doubts itself: plain SWIM."""
    gossip_interval: float = 0.1
    gossip_members: int = 3
    retransmit_mult: int = 4
    """News is sent that many times ceil(log10(n + 1))."""
    gossip_to_dead: float = 30.0
    """How long a dead member still gets gossip, so that it can refute, and is remembered."""
    push_pull_interval: float = 5.0
    """Between exchanges of the whole table with one other: what gossip missed is repaired. 0: never."""
    stream_timeout: float = 10.0
    packet_bytes: int = 1400
    """The longest datagram that is sent or taken, the seal not counted."""
    stream_bytes: int = 1 << 20
    """The longest request or answer over TCP, the seal not counted."""

    def suspicion_seconds(self, members: int) -> tuple[float, float]:
        """The shortest and the longest suspicion among that many members."""
        shortest = self.suspicion_mult * max(1.0, math.log10(max(1, members))) * self.probe_interval
        return shortest, shortest * self.suspicion_max_mult

    def confirmations(self, members: int) -> int:
        """How many confirmations shorten a suspicion all the way; 0 where so many cannot be had."""
        wanted = max(0, int(self.suspicion_mult) - 2)
        return wanted if members - 2 >= wanted else 0

    def transmits(self, members: int) -> int:
        """How often a piece of news is sent."""
        return self.retransmit_mult * math.ceil(math.log10(members + 1))

    def push_pull_seconds(self, members: int) -> float:
        """The interval of whole exchanges: longer among many, for each costs as much as there are."""
        if members <= 32:
            return self.push_pull_interval
        return self.push_pull_interval * (math.ceil(math.log2(members) - 5.0) + 1)
