"""From a task in the ledger to `launch.json`: what its command is, and all that it may know and use.

The agent's own environment is never handed on, but for a short list of what says where things are on
this machine; the bootstrap comes over that, and what the user states over everything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from shoal.cluster.local import known_homes, taskfiles
from shoal.cluster.local.folders import TaskFolders
from shoal.cluster.local.home import Home
from shoal.objects.task import RENDEZVOUS_FOLDER, TaskBootstrap, TaskSpec

__all__ = ["INHERITED", "description"]

PIDS = 4096
"""Processes and threads that a task may have at once,"""
PIDS_PER_CORE = 128
"""or so many for each core of the machine, if that is more."""

INHERITED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ",
    "LD_LIBRARY_PATH", "VIRTUAL_ENV",
)  # fmt: skip
"""All that a task has of its agent's environment."""


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
    prefixes = (environment.get("VIRTUAL_ENV", ""), sys.prefix, sys.base_prefix)
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
            other_homes=tuple(path for path in known_homes.known() if path != str(home.path)),
            tasks_socket=str(home.tasks_socket),
            keep=tuple(dict.fromkeys(filter(None, prefixes))),
            sandbox=str(folders.sandbox) if spec.isolation == "strict" else "",
        ),
    )
