"""The files through which an agent and the supervisor of a task speak, and nothing else.

A task's folder is `nodes/NODE/tasks/NAMESPACE.TASK/`. The agent writes `launch.json` before it spawns
`supervisor.py FOLDER`, and `stop.json` before each SIGTERM to it. The supervisor writes `started.json`
once the command runs and `exit.json` as the last thing it does. Each file is complete or absent: it is
written beside its place and renamed. Keys are these fields' names, plain JSON, for the supervisor
reads them with the standard library alone.

**Held descriptors.** The supervisor inherits descriptors above 2 (the lock of its folder, the claims
on its ports) and must keep them open, closed on exec, for as long as it lives: an agent that comes
back sees from the lock alone whether a supervisor is there.

**Once.** Before it forks the command the supervisor creates `begun` exclusively and gives up (without
`exit.json`) when it is there already: so no incarnation's command ever starts twice.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from shoal import statefiles

LAUNCH = "launch.json"
STARTED = "started.json"
STOP = "stop.json"
EXIT = "exit.json"
LOCK = "lock"
BEGUN = "begun"
RECORD = "record.json"
"""The ledger's record of the task (`ledger.copy_of`), for an agent that has lost its ledger."""
SECRETS = "secrets.json"
"""Variables that stand in no other file: there from before the launch is recorded until the end."""

_log = logging.getLogger(__name__)

_SPARE_BYTES = 1024

T = TypeVar("T")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a task may use."""

    cpu_millis: int = 0
    """Request: its weight against its neighbours."""
    cpu_limit_millis: int | None = None
    """Hard quota."""
    memory_bytes: int | None = None
    """Hard limit."""
    pids: int | None = None
    """Most processes and threads at once, where cgroups can be had."""


class Isolation(msgspec.Struct, frozen=True, kw_only=True):
    """What a task is to be kept apart with."""

    mode: str = "default"
    """`default`: as much of `wanted` as can be had; `strict`: all of it, or the start fails."""
    wanted: tuple[str, ...] = ()
    """Names of isolations, as the node reports them."""
    home: str = ""
    """$SHOAL_HOME: hidden from the task but for its own folders."""
    other_homes: tuple[str, ...] = ()
    """Other homes of this user and the notes of where they are, hidden from the task as a whole."""
    tasks_socket: str = ""
    """The API socket for tasks, to be seen inside; empty: there is none."""
    keep: tuple[str, ...] = ()
    """Paths inside the home, /tmp, /var/tmp or /dev/shm that stay visible; see `launch`."""
    sandbox: str = ""
    """A folder that the job's tasks on this machine share, for its network namespace (strict)."""


class LogBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a task's output is kept."""

    directory: str
    """The folder of `shoal.history.segments.Writer`; it exists."""
    max_segment_bytes: int = 16 * 1024 * 1024
    max_segments: int = 8


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a supervisor needs to know. Paths are absolute."""

    namespace: str
    task: str
    job: str
    job_uid: str
    role: str
    index: int
    incarnation: int
    argv: tuple[str, ...]
    env: dict[str, str]
    """Complete: nothing is inherited."""
    cwd: str
    scratch: str
    output: str
    rendezvous: str
    log: LogBounds
    limits: Limits = Limits()
    devices: tuple[str, ...] = ()
    isolation: Isolation = Isolation()
    cgroup_parents: dict[str, str] = {}
    """What `groups.prepare` returned: where the task's control groups go."""


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The command runs."""

    supervisor_pid: int
    supervisor_start_ticks: int
    command_pid: int
    """As the agent sees it, not as its own namespace does."""
    command_start_ticks: int
    started: float = 0.0
    cgroups: tuple[str, ...] = ()
    """Folders of the task's control groups, which end with it."""
    unenforced: tuple[str, ...] = ()
    """Wanted isolations that could not be had, `NAME: why`."""


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """The agent asks for the end."""

    reason: str
    grace_seconds: float
    at: float
    """Wall time of asking."""


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """The task has ended and nothing of it is left."""

    exit_code: int
    signal: int = 0
    reason: str = "Exited"
    """An `EndReason`."""
    message: str = ""
    stop_reason: str | None = None
    peak_memory_bytes: int = 0
    cpu_seconds: float = 0.0
    started: float = 0.0
    ended: float = 0.0


def read(
    folder: str, name: str, struct: type[T], report: Callable[[str], None] = _log.warning
) -> T | None:
    """What the file holds; None when it is absent or damaged (see `statefiles.read`)."""
    return statefiles.read(
        Path(folder, name), functools.partial(msgspec.json.decode, type=struct), report
    )


def write(folder: str, name: str, value: Any) -> None:  # Any: one of the Structs above, or bytes
    """Put the file in place whole. Survives the writer's death at any moment; not forced to the disk,
    for the ledger knows all of it, and no supervisor survives the machine.

    Raises:
        OSError: there is no room for it.
    """
    document = value if isinstance(value, bytes) else msgspec.json.encode(value)
    draft = Path(folder, f".{name}.{os.getpid()}")
    try:
        statefiles.fill(draft, document)
    except OSError:
        draft.unlink(missing_ok=True)
        draft = Path(folder, f".{name}.spare")
        if not draft.exists():
            raise
        statefiles.fill(draft, document)
    draft.replace(Path(folder, name))


def reserve(folder: str, name: str) -> None:
    """Take room for a file that must be written once even if the disk is full by then.

    Raises:
        OSError: there is none.
    """
    statefiles.fill(Path(folder, f".{name}.spare"), bytes(_SPARE_BYTES))
