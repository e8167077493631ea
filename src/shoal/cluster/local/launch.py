"""How an agent launches a task: its folders, `launch.json`, and its supervisor.

    nodes/NODE/tasks/NS.TASK/       shared with the supervisor; hidden from the task
    nodes/NODE/work/NS.TASK/        the task's own: scratch/ and rendezvous/, gone with its attempt
    output/NS/JOB_UID/              shared by the job's tasks, kept
    logs/NS/JOB_UID/...             see `shoal.history.segments`
    sandboxes/NS/JOB_UID/           see `isolation.sandbox`, which makes and removes it

Folders that are to go are first moved to the node's trash, which is one step, and removed at leisure.

**Launch.** The agent's own environment is never handed on, but for a short list of what says where
things are on this machine; the bootstrap comes over that, and what the user states over everything.
`Launch.cgroup_parents` is what `groups.prepare` returned when the agent started; `Isolation.keep` are
paths that stay visible though they are inside the home, /tmp, /var/tmp or /dev/shm (`cwd`, `scratch`,
`output` and `rendezvous` are kept anyway, and the *folder* of `tasks_socket`, which should hold nothing
else: a server that restarts makes a new socket, which a bind mount of the old one would never see).

**Start.** `spawn(folder, errors)` runs `python -I -S supervisor.py FOLDER READY` in a session of its
own, with no environment but `SHOAL_FAULTS*`. `Spawned.ready` becomes readable (end of file) as soon as
there is something to look at in the folder: `started.json`, `exit.json`, or nothing because the
supervisor died. Inheritable descriptors above 2 (the folder's lock, port claims) are held by the
supervisor *and* by its namespace init, closed on exec: the lock is free only once nothing of the task is
left.

**Stop.** Write `stop.json`, then SIGTERM to the supervisor; again to shorten the grace. SIGTERM without
`stop.json` is ignored. A `stop.json` that is there before the command is started ends the task at once
(143) and the command never runs. Every other catchable signal is ignored.

**End.** The supervisor writes `exit.json` (forced to the disk) when nothing of the task is left, removes
the cgroups and exits. Where it is gone without one, `task_monitor.settle` finishes its work.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from shoal.cluster.local import taskfiles
from shoal.cluster.local.home import Home, NodeHome, known_homes, note_folders
from shoal.history import segments
from shoal.objects.task import RENDEZVOUS_FOLDER, SECRETS_FOLDER, TaskBootstrap, TaskKey, TaskSpec

PIDS = 4096
"""Processes and threads that a task may have at once,"""
PIDS_PER_CORE = 128
"""or so many for each core of the machine, if that is more."""

INHERITED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ",
    "LD_LIBRARY_PATH", "VIRTUAL_ENV",
)  # fmt: skip
"""All that a task has of its agent's environment."""
SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))
"""The script; it finds the package by its own place."""


class TaskFolders:
    """Where one task's things are."""

    def __init__(self, home: Home, node: NodeHome, spec: TaskSpec) -> None:
        name = f"{spec.namespace}.{spec.name}"
        self._home = home
        self._spec = spec
        self.task = node.tasks / name
        self.work = node.work / name
        self.scratch = self.work / "scratch"
        self.rendezvous = self.work / "rendezvous"
        self.output = home.output / spec.namespace / spec.job_uid
        self.sandbox = home.sandboxes / spec.namespace / spec.job_uid
        self.log = Path(
            segments.task_directory(
                str(home.logs), spec.namespace, spec.job_uid, spec.role, spec.index, spec.incarnation
            )
        )

    @property
    def secrets(self) -> Path:
        """The folder of the task's secret files."""
        return self.rendezvous / SECRETS_FOLDER

    def write_secrets(self, bootstrap: TaskBootstrap) -> TaskBootstrap:
        """Write the bootstrap's secrets, for the task's user alone; the bootstrap without them.

        Raises:
            OSError: there is no room, or a file's name leads out of its folder.
        """
        if bootstrap.secret_env:
            self.task.mkdir(mode=0o700, parents=True, exist_ok=True)
            taskfiles.write(str(self.task), taskfiles.SECRETS, bootstrap.secret_env)
        for name, text in bootstrap.secret_files.items():
            if "/" in name or name in ("", ".", ".."):
                raise OSError(f"the file {name!r} is outside of the folder of secrets")
            self.secrets.mkdir(mode=0o700, parents=True, exist_ok=True)
            target = self.secrets / name
            target.touch(mode=0o600)
            target.write_text(text)
        return msgspec.structs.replace(bootstrap, secret_env={}, secret_files={})

    def create(self, bootstrap: TaskBootstrap) -> None:
        """Make all of them, and write the files of the bootstrap; idempotent.

        Raises:
            OSError: there is no room, or a file's path leads out of its folder.
        """
        for folder in (self.task, self.scratch, self.rendezvous, self.output):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        spec = self._spec
        segments.create(
            str(self._home.logs), spec.namespace, spec.job, spec.job_uid, spec.role, spec.index,
            spec.incarnation,
        )  # fmt: skip
        for path, text in bootstrap.files.items():
            target = self.rendezvous / path
            if ".." in target.parts or not target.is_relative_to(self.rendezvous):
                raise OSError(f"the file {path!r} is outside of the rendezvous folder")
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.write_text(text)
            # scripts are for running; the rest is for reading
            target.chmod(0o700 if text.startswith("#!") else 0o600)


def key_of(folder: Path) -> TaskKey:
    """The task of this folder."""
    namespace, _, name = folder.name.partition(".")
    return TaskKey(namespace=namespace, name=name)


def discard(folders: Iterable[Path], trash: Path) -> None:
    """Move them out of sight; those that are not there are no concern.

    Raises:
        OSError: one cannot be moved.
    """
    for folder in folders:
        target = trash / folder.name
        tries = 0
        while target.exists():
            tries += 1
            target = trash / f"{folder.name}.{tries}"
        with contextlib.suppress(FileNotFoundError):
            folder.rename(target)


def description(
    home: Home,
    folders: TaskFolders,
    spec: TaskSpec,
    bootstrap: TaskBootstrap,
    *,
    cgroup_parents: Mapping[str, str],
    inherited: Mapping[str, str] = os.environ,
) -> taskfiles.Launch:
    """What the task's supervisor is given."""
    environment = {name: inherited[name] for name in INHERITED if name in inherited}
    environment |= {
        "SHOAL_SCRATCH": str(folders.scratch),
        "SHOAL_OUTPUT": str(folders.output),
        "SHOAL_RENDEZVOUS": str(folders.rendezvous),
        "SHOAL_NODE": spec.placement.node,
        "SHOAL_PYTHON": sys.executable,
        **({"SHOAL_GPU_SHARE": f"{spec.placement.share / 1000:g}"} if spec.placement.share else {}),
        **{
            name: value.replace(RENDEZVOUS_FOLDER, str(folders.rendezvous))
            for name, value in bootstrap.env.items()
        },
        **spec.env,
    }
    return taskfiles.Launch(
        namespace=spec.namespace,
        task=spec.name,
        job=spec.job,
        job_uid=spec.job_uid,
        role=spec.role,
        index=spec.index,
        incarnation=spec.incarnation,
        argv=bootstrap.command or spec.command,
        env=environment,
        cwd=spec.working_directory or str(folders.scratch),
        scratch=str(folders.scratch),
        output=str(folders.output),
        rendezvous=str(folders.rendezvous),
        log=taskfiles.LogBounds(directory=str(folders.log)),
        limits=taskfiles.Limits(
            cpu_millis=int(spec.cpu),
            cpu_limit_millis=None if spec.cpu_limit is None else int(spec.cpu_limit),
            memory_bytes=None if spec.memory is None else int(spec.memory),
            pids=max(PIDS, PIDS_PER_CORE * (os.cpu_count() or 1)),
        ),
        devices=spec.placement.devices,
        cgroup_parents=dict(cgroup_parents),
        isolation=taskfiles.Isolation(
            mode=spec.isolation,
            home=str(home.path),
            other_homes=tuple(
                path for path in (*known_homes(), *note_folders()) if path != str(home.path)
            ),
            tasks_socket=str(home.tasks_socket),
            keep=tuple(dict.fromkeys((sys.prefix, sys.base_prefix))),
            sandbox=str(folders.sandbox) if spec.isolation == "strict" else "",
        ),
    )


@dataclass(frozen=True)
class Spawned:
    """A supervisor that was just started."""

    pid: int
    ready: int
    """Read end of a pipe: end of file says that it is worth looking at the folder. The caller's to
    close."""


def argv(folder: str, ready: int | None = None) -> list[str]:
    """The supervisor's command line for a task's folder."""
    return [sys.executable, "-I", "-S", SUPERVISOR, folder, *([] if ready is None else [str(ready)])]


def spawn(folder: str, errors: int) -> Spawned:
    """Start the supervisor of the task of this folder (with `launch.json`).

    `errors` is a descriptor for its standard error, where a supervisor that cannot work says why.
    Everything inheritable above 2 goes with it. The child is the caller's to reap.

    Raises:
        OSError: no process can be started.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_inheritable(writer, True)
    try:
        pid = os.posix_spawn(
            sys.executable,
            argv(folder, writer),
            {name: value for name, value in os.environ.items() if name.startswith("SHOAL_FAULTS")},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, errors, 2),
                (os.POSIX_SPAWN_DUP2, 2, 1),
            ],
            setsid=True,
            setsigmask=(signal.SIGTERM,),  # a stop may come before the supervisor handles it
            setsigdef=range(1, 32),
        )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return Spawned(pid, reader)
