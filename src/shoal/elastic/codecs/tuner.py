"""The measurements behind the choice: which setting is tried in which step, and when all ranks decide.

First the codecs, at the bucket size there is; then bucket sizes, with the codec that was chosen. Trials
of a phase go round, so that each round sees the same other load; after each change of the setting some
steps are not counted, because buffers are made and caches are cold. At the end of a phase every rank
hands in its numbers as one vector; the choice is made from its sum, so all make the same one at the same
step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from shoal.elastic.codecs.autotune import Choice, Setting, Trial, choose

__all__ = ["Plan", "Tuner"]


@dataclass(frozen=True)
class Plan:
    """What is tried. `codecs`: "none" is always among them, and is the baseline.

    A phase takes rounds * settings * (cold + counted) steps.

    Raises:
        ValueError: there is nothing to try, or no step to count.
    """

    codecs: tuple[str, ...] = ("none",)
    bucket_bytes: tuple[int, ...] = (25 << 20,)
    rounds: int = 5
    cold: int = 1
    counted: int = 2

    def __post_init__(self) -> None:
        if not self.bucket_bytes or min(self.bucket_bytes) < 1:
            raise ValueError(f"bucket sizes {self.bucket_bytes} must be positive, and at least one")
        if self.rounds < 1 or self.counted < 1 or self.cold < 0:
            raise ValueError(f"{self} counts no step")


class Tuner:
    """Of one rank. Each step: use `setting`, then `record` it; when `due`, sum `vector` over all ranks
    and give the sum to `agree`. All ranks do so at the same steps, because they count the same ones."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.choices: list[Choice] = []
        self._chosen = Setting("none", plan.bucket_bytes[0])
        self._begin(0)

    @property
    def setting(self) -> Setting:
        """To be used in the next step."""
        return self._chosen if self.done else self._schedule[self._at].setting

    @property
    def done(self) -> bool:
        """Nothing is left to be tried."""
        return self._phase > 1

    @property
    def due(self) -> bool:
        """A phase is over: the vector is to be summed before the next step."""
        return not self.done and self._at == len(self._schedule)

    def record(self, seconds: float, size_bytes: int) -> None:
        """A step in `setting` took that long for gradients of that size.

        Raises:
            RuntimeError: the vector is due first.
        """
        if self.done:
            return
        if self.due:
            raise RuntimeError("the measurements of this phase are complete: agree() comes first")
        slot = self._schedule[self._at]
        self._at += 1
        if slot.trial is not None:
            self._sums[slot.trial][0] += seconds
            self._sums[slot.trial][1] += size_bytes

    def vector(self) -> torch.Tensor:
        """This rank's measurements, fp64, shape (2 * trials,): seconds and MiB, in the order of
        trials."""
        flat = [number for seconds, size in self._sums for number in (seconds, size / (1 << 20))]
        return torch.tensor(flat, dtype=torch.float64)

    def agree(self, total: torch.Tensor) -> Choice:
        """The sum of all ranks' vectors: what is chosen, and used from now on.

        Raises:
            RuntimeError: the phase is not over.
        """
        if not self.due:
            raise RuntimeError("the measurements of this phase are not complete")
        numbers = [float(each) for each in total]
        trials = [
            Trial(setting, turn, numbers[2 * at + 1], numbers[2 * at])
            for at, (setting, turn) in enumerate(self._trials)
        ]
        choice = choose(trials, self._baseline)
        self.choices.append(choice)
        self._chosen = choice.setting
        self._begin(self._phase + 1)
        return choice

    def view_changed(self) -> None:
        """Other members, other network: what was measured says nothing any more. The setting stays, and
        all ranks, those that join too, are told it (`adopt`) and begin anew."""
        self.adopt(self._chosen)

    def adopt(self, chosen: Setting) -> None:
        """Begin anew; `chosen` is in use until something else is measured to be better."""
        self._chosen = chosen
        self._begin(0)

    def _begin(self, phase: int) -> None:
        self._phase = phase
        codecs, sizes = set(self._plan.codecs) | {"none"}, set(self._plan.bucket_bytes)
        chosen = self._chosen
        if phase == 0:
            self._baseline = Setting("none", chosen.bucket_bytes)
            tried = {Setting(codec, chosen.bucket_bytes) for codec in codecs}
        else:
            self._baseline = chosen
            tried = {Setting(chosen.codec, size) for size in sizes} | {chosen}
        if phase < 2 and len(tried) == 1:
            self._chosen = self._baseline
            self._begin(phase + 1)
            return
        self._trials, self._schedule = _schedule(self._plan, sorted(tried))
        self._sums = [[0.0, 0.0] for _ in self._trials]
        self._at = 0


@dataclass(frozen=True)
class _Slot:
    """One step: the number of its trial, or None where it is not counted."""

    setting: Setting
    trial: int | None


def _schedule(plan: Plan, settings: Sequence[Setting]) -> tuple[list[tuple[Setting, int]], list[_Slot]]:
    trials: list[tuple[Setting, int]] = []
    slots: list[_Slot] = []
    for turn in range(plan.rounds):
        # each begins in its turn: who follows whom must not favour one of them
        begin = turn % len(settings)
        for setting in (*settings[begin:], *settings[:begin]):
            slots += [_Slot(setting, None)] * plan.cold
            slots += [_Slot(setting, len(trials))] * plan.counted
            trials.append((setting, turn))
    return trials, slots
