"""What all measurements are told: how much, with which seed, where, and the peers' interpreter."""

from __future__ import annotations

import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.elastic.settings import Settings

__all__ = ["Plan"]


@dataclass(frozen=True)
class Plan:
    """Of one run of the command."""

    kills: int = 10
    """Harms per situation of Shoal; peers that restart everything get fewer."""
    rounds: int = 10
    """Pairs of interleaved measurements."""
    minutes: float = 10.0
    """How long nobody may be counted lost while the machine is busy."""
    seed: int = 0
    peers: str | None = None
    """The interpreter of the peers' environment; None leaves out peers that are not in torch."""
    folder: Path = Path(tempfile.gettempdir())
    """Where jobs have their folders."""
    only: frozenset[str] = frozenset()
    """Systems by name; empty: all."""

    @property
    def python(self) -> str:
        """The interpreter of everything that is not a peer."""
        return sys.executable

    def chance(self, what: str) -> random.Random:
        """A generator of its own for each use, the same for the same seed."""
        return random.Random(f"{self.seed}/{what}")

    def wants(self, system: str) -> bool:
        """Whether the system is to be measured."""
        return not self.only or system in self.only

    def fresh(self, settings: Settings, what: str) -> Settings:
        """The settings in a new folder."""
        name = what.replace(" ", "-").replace(",", "").replace(":", "")
        return settings.at(Path(tempfile.mkdtemp(prefix=f"shoal-bench-{name}-", dir=self.folder)))
