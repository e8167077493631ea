"""A list of jobs to submit: `name,time,application,num_replicas,batch_size`, one a line.

Replicas and batch size are what its user would ask for without elasticity: rigid policies take them as
they are.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shoal.simulate.errors import BadInput
from shoal.simulate.referee.profiles import Application

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
    try:
        with path.open(newline="") as file:
            table = csv.DictReader(file)
            missing = [name for name in _COLUMNS if name not in (table.fieldnames or ())]
            if missing:
                raise BadInput(f"{path} lacks the column {', '.join(missing)}")
            rows = list(table)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} is no CSV file: {error}") from error
    jobs = [_submission(path, line, row, applications) for line, row in enumerate(rows, 2)]
    if not jobs:
        raise BadInput(f"{path} lists no jobs")
    names = [job.name for job in jobs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInput(f"{path} lists {twice[0]} more than once")
    return jobs


def _submission(
    path: Path, line: int, row: Mapping[str, str], applications: Mapping[str, Application]
) -> Submission:
    where = f"{path}, line {line}"
    application = applications.get(row["application"])
    if application is None:
        known = ", ".join(applications)
        raise BadInput(f"{where}: no profile of {row['application']!r}; there are {known}")
    try:
        time = float(row["time"])
        replicas, batch = int(row["num_replicas"]), int(row["batch_size"])
    except (TypeError, ValueError) as error:
        raise BadInput(f"{where}: {error}") from error
    if not (math.isfinite(time) and time >= 0):
        raise BadInput(f"{where}: a job cannot be submitted at {row['time']}")
    if replicas < 1 or batch < 1:
        raise BadInput(f"{where}: replicas and batch size are 1 at least")
    if not application.initial_batch <= batch <= application.most_batch:
        span = f"{application.initial_batch} to {application.most_batch}"
        raise BadInput(f"{where}: {application.name} was measured with batches of {span}")
    return Submission(row["name"], time, application, replicas, batch)
