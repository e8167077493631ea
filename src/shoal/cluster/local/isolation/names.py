"""The isolations: their names on the wire and what each promises.

A node reports for each whether it is `enforced` or why not (`probe`), and a task lists those it asked
for and did not get as `NAME: why`.
"""

from __future__ import annotations

__all__ = ["DEFAULT", "PROMISES", "STRICT"]

PROMISES = {
    "processes": "it sees only its own processes, in a PID namespace and a /proc of its own",
    "tmp": "/tmp, /var/tmp and /dev/shm of its own",
    "home": "of $SHOAL_HOME it sees only its own folders and the tasks' socket",
    "ipc": "System V and POSIX message queues and shared memory of its own",
    "privileges": "run by root it cannot mount, trace, load modules or otherwise undo the rest; run by "
    "any user, it gains nothing by set-user-id programs, makes no user namespaces, uses no kernel "
    "keyrings and writes neither control groups nor the kernel's settings",
    "cpu": "CPU by weight, and a hard quota where one is set",
    "memory": "a hard limit on memory where one is set",
    "pids": "a limit on how many processes and threads it has",
    "network": "a network with nothing but a loopback, shared by the job's tasks on this machine",
    "system": "everything but its own folders is read-only; /run, /dev and the kernel's settings are "
    "out of reach",
    "devices": "the device files of its own GPUs and of no others",
}
"""What each isolation gives a task."""

STRICT = tuple(PROMISES)
"""All of them, none of which may be missing."""

DEFAULT = tuple(name for name in PROMISES if name not in ("network", "system", "devices"))
"""What a task gets, as far as it can be had, unless it asks for more."""
