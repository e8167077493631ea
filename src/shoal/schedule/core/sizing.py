"""Sizes of jobs with curves, inside one queue and class: what they get together divided by speed,
remaining work and restart cost (`schedule.sizing`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.schedule.core.session import Session
from shoal.schedule.core.state import JobState, fitting
from shoal.schedule.cycle.sizes.outlook import remaining, speed
from shoal.schedule.sizing.curves import every_size
from shoal.schedule.sizing.policy import Elastic
from shoal.schedule.sizing.seen import Seen

__all__ = ["SizedGroup", "sized_role"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_Curve = tuple[tuple[float, ...], int, int]
"""Speeds with 1, 2, ... tasks, minimum and maximum."""
_LEAST_RESTART_SECONDS = 1.0
_RESTARTS = 6
"""A decision is thought to hold for so many at least."""


def sized_role(job: JobState) -> int | None:
    """The role whose tasks its curve counts; None: it has no curve, or no one such role."""
    if not job.row.speeds:
        return None
    pairs = zip(job.minimums, job.maximums, strict=True)
    found = [at for at, (least, most) in enumerate(pairs) if most > max(least, 0)]
    return found[0] if len(found) == 1 and speed(job.row, job.gang()[found[0]]) > 0 else None


class SizedGroup:
    """Jobs of one queue and class whose elastic tasks are equal."""

    def __init__(self, session: Session, key: tuple[Any, ...], jobs: Sequence[JobState]) -> None:
        self._session, self._key = session, key
        # of equal ones the first to come is to end first, whatever they hold by now
        self._jobs = sorted(jobs, key=lambda job: (job.row.created, job.name), reverse=True)
        self._roles = [sized_role(job) or 0 for job in self._jobs]
        self._least = [max(1, job.gang()[at]) for job, at in zip(self._jobs, self._roles, strict=True)]
        self._held = [
            sum(task.role == job.row.roles[at].name for task in job.row.present)
            for job, at in zip(self._jobs, self._roles, strict=True)
        ]

    def sizes(self, entitled: Mapping[str, int]) -> dict[str, int]:
        """Tasks of each in all, of `entitled` in all."""
        fixed = [sum(job.gang()) - least for job, least in zip(self._jobs, self._least, strict=True)]
        pairs = list(zip(self._jobs, fixed, strict=True))
        capacity = sum(entitled[job.name] - other for job, other in pairs)
        asked = (capacity, self._jobs, self._held)
        known = self._session.base.chosen.get(self._key)
        if known is None or known[0] != asked:
            known = self._session.base.chosen[self._key] = (asked, self._chosen(capacity))
        return {job.name: size + other for (job, other), size in zip(pairs, known[1], strict=True)}

    def _chosen(self, capacity: int) -> list[int]:
        if capacity <= sum(self._least):
            return self._least
        policy = Elastic("declared", horizon=self._horizon(capacity), live=True)
        found = policy.chosen(self._seen(capacity), capacity).tolist()
        bounds = zip(self._jobs, self._roles, self._least, found, strict=True)
        return [max(least, min(size, job.maximums[at])) for job, at, least, size in bounds]

    def _seen(self, capacity: int) -> Seen:
        rows = [job.row for job in self._jobs]
        curves: dict[_Curve, int] = {}
        row = [
            curves.setdefault((job.row.speeds, least, job.maximums[at]), len(curves))
            for job, at, least in zip(self._jobs, self._roles, self._least, strict=True)
        ]
        largest = max([*self._least, *self._held, *(_most(*each) for each in curves)])
        grid = every_size(min(self._per_node(), capacity), min(largest, capacity))
        grid = np.union1d(grid, np.array(self._least, np.int64))
        speeds: Floats = np.array([_speeds(curve, grid) for curve in curves], np.float64)
        return Seen(
            grid=grid,
            row=np.array(row, np.int64),
            possible=speeds,
            allowed=speeds,
            done=np.array([row.done for row in rows]),
            left=np.array([math.nan if row.work is None else row.work - row.done for row in rows]),
            declared=any(row.work is not None for row in rows),
            least=np.array(self._least, np.int64),
            current=np.array(self._held, np.int64),
            restart=np.maximum([row.restart_seconds for row in rows], _LEAST_RESTART_SECONDS),
            submitted=np.array([row.created for row in rows], np.float64),
        )

    def _per_node(self) -> int:
        """Tasks that an empty node holds at most."""
        nodes, job, at = self._session.nodes, self._jobs[0], self._roles[0]
        there = fitting(job.requests[at], nodes.amounts, nodes.slots)
        return max(1, int(np.where(nodes.suits(job.row.roles[at]), there, 0).max(initial=0)))

    def _horizon(self, capacity: int) -> float:
        """How long a decision is thought to hold: half of what is left of a job in the middle at a fair
        share, by when all is decided anew; and for some restarts."""
        most = self._session.rules.horizon_seconds
        fair = capacity // len(self._jobs)
        left = [
            work / speed(job.row, max(least, min(job.maximums[at], fair)))
            for job, at, least in zip(self._jobs, self._roles, self._least, strict=True)
            if (work := remaining(job.row)) is not None
        ]
        if not left:
            return most
        restarts = median(max(job.row.restart_seconds, _LEAST_RESTART_SECONDS) for job in self._jobs)
        return min(most, max(median(left) / 2, _RESTARTS * restarts))


def _most(speeds: tuple[float, ...], least: int, maximum: int) -> int:
    """Tasks beyond which nothing is gained."""
    return min(maximum, max(len(speeds), least))


def _speeds(curve: _Curve, grid: Ints) -> Floats:
    """With so many tasks; below its minimum it is as much slower as it is smaller, beyond the end of its
    curve it has none."""
    speeds, least, maximum = curve
    tasks = np.clip(grid, 1, maximum)
    found: Floats = np.array(speeds, np.float64)[np.minimum(np.maximum(tasks, least), len(speeds)) - 1]
    found = np.where(tasks < least, found * tasks / least, found)
    return np.where(grid <= _most(*curve), found, 0.0)
