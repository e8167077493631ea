"""A command as a Job: its name, the variables that its tasks get, its defaults."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from shoal.objects.elastic import own_roles
from shoal.objects.errors import Invalid
from shoal.objects.job import (
    ArraySpec,
    Dependency,
    Job,
    JobSpec,
    Limits,
    Resources,
    Restart,
    Role,
    Runtime,
    SecretUse,
    Topology,
    unmet_dependencies,
)
from shoal.objects.kinds import JOB
from shoal.objects.meta import Metadata
from shoal.objects.nearest import did_you_mean
from shoal.objects.quantities import Bytes, CpuMillis, Seconds
from shoal.objects.secret import is_variable

__all__ = [
    "copy_of",
    "default_restarts",
    "dependency_of",
    "devices",
    "job_name",
    "job_of",
    "passed_on",
    "secret_use_of",
    "words_of",
]

_ELASTIC_RESTARTS = 3
"""Losing a worker is nothing that an elastic job should end of."""


_LONGEST_NAME = 63


def default_restarts(minimum: int | None) -> int:
    """The failures that a job may have by default; `minimum` is that of an elastic role."""
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
    command: str | Sequence[str],
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
    within: str = "",
    isolation: Literal["default", "strict"] = "default",
    after: Sequence[str] = (),
    secrets: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
) -> Job:
    """The Job that runs `command` on `workers` tasks (elastic, with at most so many, where
    `min_workers` is given), or once per index of `array`, such as `0-99` or, with ten at once,
    `0-99%10`. A command in one string is split as a shell splits it, without running a shell.

    The tasks run in `working_directory` (else this process's) and get this process's PATH, virtual
    environment and the like, then `env`. An elastic job has the runtime `elastic`, one of several
    workers torchrun's environment, unless `runtime` says otherwise. `within` is a level of the
    topology. `after` names jobs that have to end first, as `dependency_of` reads them, and `secrets`
    values for the tasks, as `secret_use_of` does. A name is made up where none is given: all defaults
    but `cpu` are those of `shoal run`. Quantities are spelt as in YAML: `cpu="500m"`, `memory="2Gi"`,
    `wall_time="2h"`; `gpu=0.5` is a part of one device.

    Raises:
        Invalid: there is no command, an array has workers, `gpu` is not a number of devices, `after`
            names something else than jobs, or one of `secrets` cannot be read.
        QuantityError: a quantity cannot be read.
    """
    words = words_of(command)
    if array and (workers != 1 or min_workers is not None):
        raise Invalid("an array runs one task per index, so it takes no number of workers")
    whole, part = devices(gpu)
    role = Role(
        replicas=workers,
        min_replicas=min_workers,
        command=words,
        env={**passed_on(os.environ), **(env or {})},
        secrets=tuple(map(secret_use_of, secrets)),
        working_directory=os.fspath(working_directory or Path.cwd()),
        resources=Resources(
            cpu=cpu if isinstance(cpu, CpuMillis) else CpuMillis.parse(cpu),
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
        after=tuple(map(dependency_of, after)),
        array=_array(array, parallelism) if array else None,
        topology=Topology(required=within) if within else None,
        limits=Limits(
            wall_time=None if wall_time is None else Seconds.parse(wall_time), node_hours=node_hours
        ),
        restart=Restart(limit=default_restarts(min_workers) if restarts is None else restarts),
        isolation=isolation,
    )
    metadata = Metadata(name=name or job_name(words), namespace=namespace, labels=dict(labels or {}))
    return Job(metadata=metadata, spec=spec)


def copy_of(job: Job, taken: int = 0) -> Job:
    """The job to submit again: its spec as people wrote it, its labels, and a name of its own, with a
    number above `taken`."""
    stem, number = job.metadata.name, 0
    if found := re.fullmatch(r"(.+)-retry([1-9][0-9]{0,5})", stem):
        stem, number = found[1], int(found[2])
    suffix = f"-retry{max(number, taken) + 1}"
    spec = msgspec.structs.replace(
        job.spec,
        roles=own_roles(job.spec),
        cancelled=False,
        suspend=False,
        after=unmet_dependencies(job),
    )
    metadata = Metadata(
        name=stem[: _LONGEST_NAME - len(suffix)].rstrip("-.") + suffix,
        namespace=job.metadata.namespace,
        labels=job.metadata.labels,
    )
    return Job(metadata=metadata, spec=spec)


def dependency_of(text: str) -> Dependency:
    """`job/x`, `job/x:failure` or `x:end` as the dependency on that job; without a word on its success.

    Raises:
        Invalid: it names another kind, or an end that is none.
    """
    target, _, end = text.partition(":")
    kind, slash, name = target.partition("/")
    if not slash:
        kind, name = "job", target
    if kind.lower() not in (JOB.name.lower(), JOB.plural, *JOB.aliases) or not name:
        raise Invalid(f"{text!r} does not name a job", hint="write it such as job/prepare")
    if end not in ("", "success", "failure", "end"):
        near = did_you_mean(end, ("success", "failure", "end"))
        raise Invalid(f"{text!r}: a job is waited for on success, failure or end{near}")
    return Dependency(job=name, on=end or "success")


def secret_use_of(text: str) -> SecretUse:
    """`NAME[/KEY]=VARIABLE` as the secret's value in that variable, `NAME[/KEY]:FILE` as the file
    `$SHOAL_SECRETS/FILE`; with neither, a variable called like the secret: `hub-token` in `HUB_TOKEN`.

    Raises:
        Invalid: there is no name, variable or file, or the file is a path.
    """
    found = re.fullmatch(r"([^=:/]+)(?:/([^=:]+))?(?:=(.+)|:(.+))?", text)
    if found is None:
        hint = "write it such as hub-token, hub-token=HUB_TOKEN, mail/password=PASSWORD or tls:key.pem"
        raise Invalid(f"{text!r} does not name a secret and its variable or file", hint=hint)
    name, key, variable, file = found.groups(default="")
    if variable and not is_variable(variable):
        near = f"a file is written {name}{variable}" if variable.startswith(":") else ""
        hint = near or f"use letters, digits and underscores, such as {name}=TOKEN"
        raise Invalid(f"{text!r}: {variable!r} is not the name of a variable", hint=hint)
    if "/" in file:
        hint = f"write {name}:{file.rpartition('/')[2]}; the task finds it in $SHOAL_SECRETS"
        raise Invalid(f"{text!r}: a secret's file is a name in $SHOAL_SECRETS, not a path", hint=hint)
    if not (variable or file):
        variable = re.sub(r"[^A-Za-z0-9]", "_", key or name).upper()
    use = SecretUse(name=name, env=variable, file=file)
    return msgspec.structs.replace(use, key=key) if key else use


def words_of(command: str | Sequence[str]) -> tuple[str, ...]:
    """The words of a command; one string is split as a shell splits it.

    Raises:
        Invalid: there are none, a quote is not closed, or a word is no text.
    """
    if isinstance(command, str):
        try:
            command = shlex.split(command)
        except ValueError as error:
            raise Invalid(f"the command {command!r} cannot be split into words: {error}") from error
    words: tuple[Any, ...] = tuple(command)
    if not words:
        raise Invalid("there is no command to run")
    wrong = next((word for word in words if not isinstance(word, str)), None)
    if wrong is not None:
        raise Invalid(f"{wrong!r} in the command is not text", hint=f"write {str(wrong)!r}")
    return words


def _array(text: str, parallelism: int | None) -> ArraySpec:
    indices, percent, most = text.partition("%")
    if percent and parallelism is None and most.isdecimal() and int(most):
        parallelism = int(most)
    elif percent:
        raise Invalid(f"array {text!r}: one number of tasks at once follows %, such as 0-99%10")
    return ArraySpec(indices=indices, parallelism=parallelism)


def _runtime(workers: int, minimum: int | None) -> Runtime:
    if minimum is not None:
        return "elastic"
    return "torchrun" if workers > 1 else "plain"


_INTERPRETERS = re.compile(
    r"(python|pypy|node|ruby|perl)[0-9.]*|bash|sh|zsh|env|nice|nohup|time|torchrun|uv|run|mpirun|mpiexec"
)
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Without vowels, so that no name spells a word."""


def job_name(command: Sequence[str]) -> str:
    """A name that says what runs and is not taken: `train-x7k2q` for `python train.py`."""
    suffix = "".join(_LETTERS[byte % len(_LETTERS)] for byte in os.urandom(5))
    return f"{_stem(command)}-{suffix}"


def _stem(command: Sequence[str]) -> str:
    clean = re.sub(r"[^a-z0-9]+", "-", _program(command).lower()).strip("-")[:40].strip("-")
    return clean or "job"


def _program(command: Sequence[str]) -> str:
    """The script, module or program that the words run; the interpreter where they hold a program."""
    words = iter(command)
    for word in words:
        name = Path(word).name
        if word == "-c":
            break
        if word == "-m":
            return next(words, "").rpartition(".")[2]
        if not word.startswith("-") and "=" not in word and not _INTERPRETERS.fullmatch(name):
            return name.partition(".")[0]
    return Path(command[0]).name


# A task must find the same programs and libraries as the shell or program it was started from, and must
# not get its secrets: a Job is stored, and each reader of the Job may read its environment. So this is a
# list of what is passed, not of what is held back.
_NAMES = frozenset((
    # user and folders
    "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ",
    # which programs and libraries
    "PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "DYLD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH",
    # where things are cached, and which certificates count
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "HF_HOME", "TORCH_HOME",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    "NO_COLOR", "FORCE_COLOR",
))  # fmt: skip
_FAMILIES = (
    "LC_", "PYTHON", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "NCCL_", "GLOO_", "UCX_",
    "TORCH_", "PYTORCH_", "XLA_",
)  # fmt: skip
_SECRET_WORDS = ("TOKEN", "SECRET", "PASSW", "CREDENTIAL", "API_KEY", "APIKEY", "ACCESS_KEY", "PRIVATE")


def passed_on(caller: Mapping[str, str]) -> dict[str, str]:
    """The variables of `caller` that a task gets, and unbuffered output for Python."""
    passed = {name: value for name, value in sorted(caller.items()) if _passes(name)}
    passed.setdefault("PYTHONUNBUFFERED", "1")  # or a line would wait in the task for a full buffer
    return passed


def _passes(name: str) -> bool:
    if any(word in name.upper() for word in _SECRET_WORDS):
        return False
    return name in _NAMES or name.startswith(_FAMILIES)
