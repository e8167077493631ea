"""The Job that the options of `shoal run` describe."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shoal.cli.failures import Usage
from shoal.client.submit import job_of, passed_on
from shoal.objects.job import Job
from shoal.objects.quantities import CpuMillis

_CROWD = 32


@dataclass(frozen=True)
class Request:
    """What was said on the command line; None and empty: not said."""

    command: tuple[str, ...]
    directory: str
    environment: dict[str, str]
    workers: int | None = None
    least: int | None = None
    most: int | None = None
    indices: tuple[str, int | None] | None = None
    cpu: CpuMillis | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The other options of `shoal.client.submit.job_of`, by its names for them."""

    def __post_init__(self) -> None:
        """Refuse what does not go together.

        Raises:
            Usage: two options contradict each other.
        """
        elastic = self.least is not None or self.most is not None
        if elastic and self.workers is not None:
            raise Usage("--workers is a fixed number, --min and --max a range; give one of the two")
        if self.least is not None and self.most is None:
            raise Usage("--min needs --max", hint=f"such as --min {self.least} --max {self.least + 3}")
        if self.least is not None and self.most is not None and self.least > self.most:
            raise Usage(f"--min {self.least} is more than --max {self.most}")
        for what, text in self._texts():
            if not _is_unicode(text):
                raise Usage(f"{what} holds bytes that are no UTF-8, which a job cannot hold")
        if self.indices is not None and (elastic or self.workers is not None):
            raise Usage("--array runs one task per index; it takes no --workers, --min or --max")

    def _texts(self) -> Iterator[tuple[str, str]]:
        yield from ((f"the word {word!r}", word) for word in self.command)
        yield f"the directory {self.directory!r}", self.directory
        for name, value in self.environment.items():
            yield f"the variable {name!r}", name + value


def build_job(request: Request, namespace: str, node_millis: Sequence[int]) -> Job:
    """The Job; `node_millis` are the sizes of the nodes, for the processors of a task."""
    cpu = request.cpu
    if cpu is None:
        cpu = CpuMillis(cpu_share(node_millis, at_once(request, node_millis)))
    indices, parallelism = request.indices or ("", None)
    return job_of(
        request.command,
        namespace=namespace,
        workers=request.workers or request.most or 1,
        min_workers=(request.least or 1) if request.most is not None else None,
        array=indices,
        parallelism=parallelism,
        cpu=cpu,
        env=request.environment,
        working_directory=request.directory,
        **request.options,
    )


def at_once(request: Request, node_millis: Sequence[int]) -> int:
    """The most tasks that run at the same time. An array without a bound (`0-999%8`) runs all of its
    indices, but no more than 32 to a core."""
    if request.indices is None:
        return request.workers or request.most or 1
    from shoal.objects.ranges import IndexSet

    indices, bound = request.indices
    return min(len(IndexSet.parse(indices)), bound or max(1, sum(node_millis) * _CROWD // 1000))


def _is_unicode(text: str) -> bool:
    """False for what the shell gave as bytes that could not be decoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def task_environment(
    caller: Mapping[str, str], said: Iterable[tuple[str, str | None]]
) -> dict[str, str]:
    """The variables of a task: those passed on by default, then what `--env` says.

    `said` holds (name, value), and (name, None) for a variable of the caller's to pass on.

    Raises:
        Usage: a variable is to be passed on that the caller does not have.
    """
    passed = passed_on(caller)
    for name, value in said:
        if value is None and name not in caller:
            raise Usage(
                f"--env {name}: there is no such variable here", hint=f"write --env {name}=VALUE"
            )
        passed[name] = caller[name] if value is None else value
    return passed


_WHOLE = 1000
_KEPT_BACK = 100
"""Thousandths of a core per node that stay free, for the coordinator of an elastic job."""


def cpu_share(node_millis: Sequence[int], at_once: int) -> int:
    """Thousandths of a core for each of `at_once` tasks on nodes of these sizes: at most one core, and
    on one node min(1, (cores - 0.1) / tasks). Always at least 1."""
    room = [millis - _KEPT_BACK for millis in node_millis if millis > _KEPT_BACK]
    shares = {_WHOLE, *(size // tasks for size in room for tasks in range(1, at_once + 1))}
    for share in sorted((s for s in shares if 0 < s <= _WHOLE), reverse=True):
        if sum(size // share for size in room) >= at_once:
            return share
    return 1


def local_cores_millis() -> int:
    """Thousandths of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) * 1000
    return (os.cpu_count() or 1) * 1000
