"""How an agent starts a supervisor, and what both must agree on beyond `taskfiles`.

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
the cgroups and exits. Where it is gone without one, `supervisor_recovery.settle` finishes its work.

**Keys beyond taskfiles' first form**, all with defaults there:

- `Launch.cgroup_parents`: what `isolation.cgroup_parents.prepare` returned when the agent started;
- `Limits.pids`: most processes and threads at once (cgroup only);
- `Isolation.keep`: paths that stay visible though they are inside the home, /tmp, /var/tmp or /dev/shm
  (a virtual environment, the folder that holds the tasks' socket). `cwd`, `scratch`, `output` and
  `rendezvous` are kept anyway, and the *folder* of `tasks_socket`, which should hold nothing else: a
  server that restarts makes a new socket, which a bind mount of the old one would never see;
- `Isolation.wanted`: names of `isolation.names`; empty means all that the mode has.

Standard library only.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SUPERVISOR", "Spawned", "argv", "spawn"]

SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))
"""The script; it finds the package by its own place."""


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
