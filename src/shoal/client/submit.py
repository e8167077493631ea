"""A command as a Job, for Python programs: what `Client.run` submits."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from shoal.client.environment import passed_on
from shoal.client.names import job_name
from shoal.objects.errors import Invalid
from shoal.objects.job import ArraySpec, Job, JobSpec, Limits, Resources, Restart, Role, Runtime
from shoal.objects.meta import Metadata
from shoal.objects.quantities import Bytes, CpuMillis, Seconds

__all__ = ["default_restarts", "devices", "job_of"]

_ELASTIC_RESTARTS = 3
"""Losing a worker is nothing that an elastic job should end of."""


def default_restarts(minimum: int | None) -> int:
    """How many failures are forgiven when nobody said; `minimum` is that of an elastic role."""
    return 0 if minimum is None else _ELASTIC_RESTARTS


def devices(gpu: float) -> tuple[int, float | None]:
    """(whole devices, the part of one): `Resources.gpu` and `gpu_share` for a number of devices.

    Raises:
        Invalid: it is neither.
    """
    if 0 < gpu < 1:
        return 0, gpu
    if math.isfinite(gpu) and gpu >= 0 and gpu == int(gpu):
        return int(gpu), None
    raise Invalid(f"{gpu:g} is neither a whole number of GPUs nor a part of one, such as 0.5")


def job_of(
    command: Sequence[str],
    *,
    name: str = "",
    namespace: str = "default",
    workers: int = 1,
    min_workers: int | None = None,
    array: str = "",
    parallelism: int | None = None,
    runtime: Runtime | None = None,
    queue: str = "default",
    priority: int | str = 0,
    cpu: str | float = 1,
    memory: str | int | None = None,
    gpu: float = 0,
    env: Mapping[str, str] | None = None,
    working_directory: str | os.PathLike[str] | None = None,
    restarts: int | None = None,
    wall_time: str | float | None = None,
    node_hours: float | None = None,
    labels: Mapping[str, str] | None = None,
) -> Job:
    """The Job that runs `command` on `workers` tasks (elastic where `min_workers` is given), or once
    per index of `array`, such as `0-99`.

    The tasks run in `working_directory` (else this process's) and get this process's PATH, virtual
    environment and their kin, then `env`. An elastic job has the runtime `elastic`, one of several
    workers torchrun's environment, unless `runtime` says otherwise. A name is made up where none is
    given: all defaults but `cpu` are those of `shoal run`. Quantities are spelt as in YAML:
    `cpu="500m"`, `memory="2Gi"`, `wall_time="2h"`; `gpu=0.5` is a part of one device.

    Raises:
        Invalid: there is no command, an array has workers, or `gpu` is no number of devices.
        QuantityError: a quantity is none.
    """
    if not command:
        raise Invalid("there is no command to run")
    if array and workers != 1:
        raise Invalid("an array runs one task per index, so it takes no number of workers")
    whole, part = devices(gpu)
    role = Role(
        replicas=workers,
        min_replicas=min_workers,
        command=tuple(command),
        env={**passed_on(os.environ), **(env or {})},
        working_directory=os.fspath(working_directory or Path.cwd()),
        resources=Resources(
            cpu=CpuMillis.parse(cpu),
            memory=None if memory is None else Bytes.parse(memory),
            gpu=whole,
            gpu_share=part,
        ),
    )
    spec = JobSpec(
        roles=(role,),
        runtime=runtime or _runtime(workers, min_workers),
        queue=queue,
        priority=priority,
        array=ArraySpec(indices=array, parallelism=parallelism) if array else None,
        limits=Limits(
            wall_time=None if wall_time is None else Seconds.parse(wall_time), node_hours=node_hours
        ),
        restart=Restart(limit=default_restarts(min_workers) if restarts is None else restarts),
    )
    metadata = Metadata(name=name or job_name(command), namespace=namespace, labels=dict(labels or {}))
    return Job(metadata=metadata, spec=spec)


def _runtime(workers: int, minimum: int | None) -> Runtime:
    if minimum is not None:
        return "elastic"
    return "torchrun" if workers > 1 else "plain"
