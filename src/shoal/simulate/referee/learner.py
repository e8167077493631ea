"""What a job finds out about itself while it trains, as the library inside it would report it.

It sees how long its own steps take and how noisy its gradients are, at the sizes that it has had. Where
profiles are shared, a new job begins with what earlier jobs of its application have seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal.schedule.allot import Outlook
from shoal.schedule.speed.calibrated import Calibrated, calibrate
from shoal.schedule.speed.goodput import Batching, Goodput, Noise, best_goodput
from shoal.schedule.speed.throughput import Observation
from shoal.simulate.referee.training import Split, Training, split_batch

__all__ = ["Learner", "Profile"]

_MOST_REPLICAS = 64
"""What every policy is held to that explores, as in the published simulator."""


@dataclass
class Profile:
    """Observations of one job, or of all jobs of an application."""

    steps: dict[tuple[int, int, int], Observation] = field(
        default_factory=dict[tuple[int, int, int], Observation]
    )
    noise: Noise | None = None
    times: Calibrated | None = None


class Learner:
    """One job's. `profile` may be shared with others of its application."""

    def __init__(self, job: Training, profile: Profile) -> None:
        self._job = job
        self._profile = profile
        self._noise = profile.noise
        self._cache: tuple[object, NDArray[np.float64]] | None = None
        application = job.application
        self._batching = Batching(
            initial=application.initial_batch,
            most=application.most_batch,
            least_local=application.least_local,
            most_local=application.most_local,
            fixed=application.batch,
        )
        job.choose = self._split

    def observe(self) -> None:
        """Take in how the job trains now; a pausing or waiting one shows nothing."""
        job, profile = self._job, self._profile
        if not job.nodes or job.pause or job.completed is not None:
            return
        split, nodes, replicas = job.split, len(job.placement), job.replicas
        sqr, var = job.application.gradient(split.batch(replicas), job.epoch)
        self._noise = Noise(sqr, var)
        if profile.noise is None:
            profile.noise = self._noise
        key = (nodes, replicas, split.local)
        if key not in profile.steps:
            step, sync = job.application.step_times(job.placement, split.local)
            profile.steps[key] = Observation(nodes, replicas, split.local, step, sync)
            profile.times = calibrate(list(profile.steps.values()))

    @property
    def known(self) -> bool:
        """Whether anything has been observed."""
        return self._profile.times is not None and self._noise is not None

    @property
    def most(self) -> int:
        """Replicas that it may have: twice as many as were seen, as far as its batch allows."""
        seen = max((each.replicas for each in self._profile.steps.values()), default=0)
        return max(1, min(2 * seen, self.limit))

    @property
    def limit(self) -> int:
        """Replicas that its batch allows at most."""
        application = self._job.application
        return min(_MOST_REPLICAS, application.replicas_for(application.most_batch))

    def outlook(self, declared: float | None) -> Outlook:
        """What a policy may know; `declared`: the work that its user has said it is, over the true one;
        None: nothing was said."""
        job = self._job
        whole = job.application.progress[-1]
        return Outlook(
            speeds=self._speeds if self.known else None,
            most=self.most,
            limit=self.limit,
            done=job.progress,
            remaining=None if declared is None else declared * whole - job.progress,
        )

    def _speeds(self, nodes: NDArray[np.int64], replicas: NDArray[np.int64]) -> NDArray[np.float64]:
        """Predicted at these sizes; the same until something new has been seen."""
        key = (len(self._profile.steps), self._noise, nodes.tobytes(), replicas.tobytes())
        if self._cache is None or self._cache[0] != key:
            self._cache = (key, self._best(nodes, replicas).value)
        return self._cache[1]

    def _best(self, nodes: ArrayLike, replicas: ArrayLike) -> Goodput:
        assert self._profile.times is not None and self._noise is not None
        return best_goodput(self._profile.times, self._batching, self._noise, nodes, replicas)

    def _split(self, nodes: int, replicas: int) -> Split:
        application = self._job.application
        if not self.known or application.batch is not None:
            return split_batch(application, application.batch or application.initial_batch, replicas)
        best = self._best([nodes], [replicas])
        return Split(int(best.local[0]), int(best.accumulations[0]))
