"""A list of jobs to submit: `name,time,application,num_replicas,batch_size`, one a line.

Replicas and batch size are what its user would ask for without elasticity: rigid policies take them as
they are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shoal.simulate.errors import BadInput
from shoal.simulate.referee.profiles import Application
from shoal.simulate.tables import Row, amount, read_rows

__all__ = ["Submission", "read_workload"]

_COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")


@dataclass(frozen=True)
class Submission:
    """One job: who, when (seconds), what, and its tuned size."""

    name: str
    time: float
    application: Application
    replicas: int
    batch: int


def read_workload(path: Path, applications: Mapping[str, Application]) -> list[Submission]:
    """The file's jobs in its order. Raises `BadInput`."""
    rows = read_rows(path, _COLUMNS, empty="lists no jobs")
    jobs = [_submission(where, row, applications) for where, row in rows]
    times = Counter(job.name for job in jobs)
    twice = sorted(name for name, count in times.items() if count > 1)
    if twice:
        raise BadInput(f"{path} lists {twice[0]} more than once")
    return jobs


def _submission(where: str, row: Row, applications: Mapping[str, Application]) -> Submission:
    name, time_said, of = (row[column] or "" for column in _COLUMNS[:3])
    application = applications.get(of)
    if application is None:
        known = ", ".join(applications)
        raise BadInput(f"{where}: no profile of {of!r}; there are {known}")
    try:
        time = float(time_said)
    except ValueError:
        raise BadInput(f"{where}: time is a number of seconds, not {time_said!r}") from None
    if not (math.isfinite(time) and time >= 0):
        raise BadInput(f"{where}: a job cannot be submitted at {time_said}")
    replicas, batch = amount(where, row, "num_replicas"), amount(where, row, "batch_size")
    if replicas < 1 or batch < 1:
        raise BadInput(f"{where}: replicas and batch size are 1 at least")
    if not application.initial_batch <= batch <= application.most_batch:
        span = f"{application.initial_batch} to {application.most_batch}"
        raise BadInput(f"{where}: {application.name} was measured with batches of {span}")
    return Submission(name, time, application, replicas, batch)
