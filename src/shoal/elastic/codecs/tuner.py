"""The measurements behind the choice: which setting is tried in which step, and when it is decided.

First the codecs, at the first bucket size; then bucket sizes, with the codec that was chosen. Trials of
a phase go round, so that each round sees the same other load; after each change of the setting some
steps are not counted, because buffers are made and caches are cold. What is far slower is tried twice,
not again.

A tuner is a function of the durations that it is given. Those are sums over all ranks, so that all have
the same settings in the same steps, and no message is needed for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shoal.elastic.codecs.autotune import Choice, Setting, Trial, choose, hopeless

__all__ = ["Plan", "Tuner"]


@dataclass(frozen=True)
class Plan:
    """What may be used. One codec and one bucket size are used without being measured; of several, the
    first is the baseline, which another has to beat.

    A phase takes at most rounds * settings * (cold + counted) + 1 steps.

    Raises:
        ValueError: there is nothing to try, or no step to count.
    """

    codecs: tuple[str, ...] = ("none",)
    bucket_bytes: tuple[int, ...] = (25 << 20,)
    rounds: int = 5
    cold: int = 1
    counted: int = 2

    def __post_init__(self) -> None:
        if not self.codecs:
            raise ValueError("there is no codec to use")
        if not self.bucket_bytes or min(self.bucket_bytes) < 1:
            raise ValueError(f"bucket sizes {self.bucket_bytes} must be positive, and at least one")
        if self.rounds < 1 or self.counted < 1 or self.cold < 0:
            raise ValueError(f"{self} counts no step")

    def __str__(self) -> str:
        sizes = [Setting("", size).buckets for size in self.bucket_bytes]
        return f"{' or '.join(self.codecs)} in {' or '.join(sizes)}"

    @property
    def measures(self) -> bool:
        """Whether there is anything to choose."""
        return len(set(self.codecs)) > 1 or len(set(self.bucket_bytes)) > 1

    @property
    def first(self) -> Setting:
        """Used before anything is measured."""
        return Setting(self.codecs[0], self.bucket_bytes[0])


@dataclass(frozen=True)
class _Slot:
    """One step; `counted`: its duration is part of the trial."""

    setting: Setting
    round: int
    counted: bool


class Tuner:
    """Of one rank, in one view. Each step: use `setting`, then `record`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._chosen = plan.first
        self.choices: list[Choice] = []
        """One a phase in which there was something to choose."""
        self._begin(0)

    @property
    def setting(self) -> Setting:
        """To be used in the next step."""
        return self._chosen if self._slot is None else self._slot.setting

    @property
    def done(self) -> bool:
        """Nothing is left to be tried."""
        return self._phase > 1

    def record(self, seconds: float) -> Choice | None:
        """A step is over. `seconds`: how long the one *before* it took, summed over all ranks; what the
        first of a view is told is nobody's. The choice, when a phase ends with this step.

        Raises:
            ValueError: a step that counts took no time.
        """
        if self.done:
            return None
        if self._before is not None and self._before.counted:
            key = (self._before.setting, self._before.round)
            self._seconds.setdefault(key, []).append(seconds)
        self._before, self._slot = self._slot, next(self._slots, None)
        if self._before is not None:
            return None
        choice = choose(self._trials(), self._baseline)
        self.choices.append(choice)
        self._chosen = choice.setting
        self._begin(self._phase + 1)
        return choice

    def _begin(self, phase: int) -> None:
        self._phase = phase
        self._before = self._slot = None
        self._seconds: dict[tuple[Setting, int], list[float]] = {}
        self._baseline = chosen = self._chosen
        if self.done:
            return
        tried = {Setting(codec, chosen.bucket_bytes) for codec in self._plan.codecs}
        if phase == 1:
            tried = {Setting(chosen.codec, size) for size in self._plan.bucket_bytes}
        if len(tried) == 1:
            self._begin(phase + 1)
            return
        self._slots = self._schedule(sorted(tried))
        self._slot = next(self._slots)

    def _schedule(self, settings: list[Setting]) -> Iterator[_Slot]:
        for turn in range(self._plan.rounds):
            trials = self._trials()
            going = [s for s in settings if not hopeless(trials, s, self._baseline)]
            # each begins in its turn: who follows whom must not favour one of them
            begin = turn % len(going)
            for setting in (*going[begin:], *going[:begin]):
                for step in range(self._plan.cold + self._plan.counted):
                    yield _Slot(setting, turn, step >= self._plan.cold)

    def _trials(self) -> list[Trial]:
        """Those that are complete."""
        return [
            Trial(setting, turn, sum(seconds))
            for (setting, turn), seconds in self._seconds.items()
            if len(seconds) == self._plan.counted
        ]
