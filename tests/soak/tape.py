"""What the workers have told: read as it is written, checked as it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

__all__ = ["Tape"]


@dataclass
class Tape:
    """`first_at[s]`: when step s was first told of; `sizes[n]`: steps of n workers; `problems`: a line
    for each rule that was broken.

    A life (an incarnation) tells each of its steps once, in order; one may be missing where it took the
    state of a peer that was ahead. Lives that went on from a step had the same state then.
    """

    first_at: dict[int, float] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)
    compared: int = 0
    sizes: Counter[int] = field(default_factory=Counter[int])
    jumps: int = 0
    members: list[str] = field(default_factory=list)
    joined_at: dict[str, float] = field(default_factory=dict)
    epoch: int = 0
    done: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    _last: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """The newest."""
        return max(self.first_at, default=0)

    def hear(self, name: str, lines: Iterable[dict[str, Any]]) -> None:
        """What that worker has told since."""
        for line in lines:
            if "members" in line:
                self._view(name, line)
            elif "of" in line:
                self._digest(name, line)
            elif "step" in line:
                self._step(name, line)
            elif line.get("done"):
                self.done[name] = line

    def pauses(self) -> list[tuple[float, float]]:
        """(begin, end) between each two steps that follow each other."""
        at = [self.first_at[step] for step in sorted(self.first_at)]
        return list(pairwise(at))

    def missing(self, last: int) -> list[int]:
        """Steps up to the last that nobody told of."""
        return [step for step in range(1, last + 1) if step not in self.first_at]

    def _view(self, name: str, line: dict[str, Any]) -> None:
        if name in line["members"]:
            self.joined_at[name] = line["at"]
        if line["epoch"] > self.epoch:
            self.epoch, self.members = line["epoch"], line["members"]

    def _step(self, name: str, line: dict[str, Any]) -> None:
        step, life = line["step"], (name, line["life"])
        self.sizes[line["size"]] += step not in self.first_at
        self.first_at[step] = min(line["at"], self.first_at.get(step, line["at"]))
        before = self._last.get(life)
        self._last[life] = step
        if before is not None and step != before + 1:
            if step == before + 2:
                self.jumps += 1
            else:
                self.problems.append(f"{name}, life {life[1]}: step {step} after step {before}")
        if line["committed"] > step or line["committed"] < step - 1:
            self.problems.append(f"{name}: committed {line['committed']} at step {step}")

    def _digest(self, name: str, line: dict[str, Any]) -> None:
        self.compared += line["of"] in self.digests
        known = self.digests.setdefault(line["of"], line["digest"])
        if known != line["digest"]:
            self.problems.append(f"{name} has another state after step {line['of']} than its peers")
