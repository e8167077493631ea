"""A command as a Job, for Python programs: what `Client.run` submits."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from shoal.objects.errors import Invalid
from shoal.objects.job import ArraySpec, Job, JobSpec, Limits, Resources, Restart, Role, Runtime
from shoal.objects.meta import Metadata
from shoal.objects.quantities import Bytes, CpuMillis, Seconds

__all__ = ["job_of"]

_PASSED_ON = ("PATH", "HOME", "LANG", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH")


def job_of(
    command: Sequence[str],
    *,
    name: str = "",
    namespace: str = "default",
    workers: int = 1,
    min_workers: int | None = None,
    array: str = "",
    parallelism: int | None = None,
    runtime: Runtime = "plain",
    queue: str = "default",
    priority: int | str = 0,
    cpu: str | float = 1,
    memory: str | int | None = None,
    gpu: int = 0,
    env: Mapping[str, str] | None = None,
    working_directory: str | os.PathLike[str] | None = None,
    restarts: int = 3,
    wall_time: str | float | None = None,
    labels: Mapping[str, str] | None = None,
) -> Job:
    """The Job that runs `command` on `workers` tasks (elastic where `min_workers` is given), or once
    per index of `array`, such as `0-99`.

    The tasks run in `working_directory` (else this process's) and get this process's PATH, virtual
    environment and their kin, then `env`. A name is made up where none is given. Quantities are
    spelt as in YAML: `cpu="500m"`, `memory="2Gi"`, `wall_time="2h"`.

    Raises:
        Invalid: there is no command, or an array has workers.
        QuantityError: a quantity is none.
    """
    if not command:
        raise Invalid("there is no command to run")
    if array and workers != 1:
        raise Invalid("an array runs one task per index, so it takes no number of workers")
    passed = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
    role = Role(
        replicas=workers,
        min_replicas=min_workers,
        command=tuple(command),
        env={"PYTHONUNBUFFERED": "1", **passed, **(env or {})},
        working_directory=os.fspath(working_directory or Path.cwd()),
        resources=Resources(
            cpu=CpuMillis.parse(cpu), memory=None if memory is None else Bytes.parse(memory), gpu=gpu
        ),
    )
    spec = JobSpec(
        roles=(role,),
        runtime=runtime,
        queue=queue,
        priority=priority,
        array=ArraySpec(indices=array, parallelism=parallelism) if array else None,
        limits=Limits(wall_time=None if wall_time is None else Seconds.parse(wall_time)),
        restart=Restart(limit=restarts),
    )
    metadata = Metadata(name=name or _made_up(command), namespace=namespace, labels=dict(labels or {}))
    return Job(metadata=metadata, spec=spec)


def _made_up(command: Sequence[str]) -> str:
    """From the script if there is one, else from the program; made unique by random letters."""
    words = [Path(word).name for word in command]
    script = next((word for word in words if word.endswith(".py")), words[0])
    stem = re.sub(r"[^a-z0-9]+", "-", script.removesuffix(".py").lower()).strip("-")[:40].strip("-")
    return f"{stem or 'job'}-{os.urandom(3).hex()}"
