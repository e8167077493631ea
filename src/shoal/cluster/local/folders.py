"""The folders of a task and of its job on this node: made at launch, gone when nobody needs them.

    nodes/NODE/tasks/NS.TASK/       shared with the supervisor; hidden from the task
    nodes/NODE/work/NS.TASK/        the task's own: scratch/ and rendezvous/, gone with its attempt
    output/NS/JOB_UID/              shared by the job's tasks, kept
    logs/NS/JOB_UID/...             see `shoal.history.segments`
    sandboxes/NS/JOB_UID/           what strictly isolated tasks of the job share

What is to go is first moved to the node's trash, which is one step, and then removed at leisure; what
lies in the trash when an agent starts is removed too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.cluster.local.home import Home, NodeHome
from shoal.history import segments
from shoal.objects.task import TaskKey, TaskSpec, Told

__all__ = ["TaskFolders", "discard", "empty", "job_folders", "key_of"]


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

    def create(self, told: Told) -> None:
        """Make all of them, and write what the task is told in files; idempotent.

        Raises:
            OSError: there is no room, or a file's path leads out of its folder.
        """
        for folder in (self.task, self.scratch, self.rendezvous, self.output):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._spec.isolation == "strict":
            self.sandbox.mkdir(mode=0o700, parents=True, exist_ok=True)
        spec = self._spec
        segments.create(
            str(self._home.logs), spec.namespace, spec.job, spec.job_uid, spec.role, spec.index,
            spec.incarnation,
        )  # fmt: skip
        for path, text in told.files.items():
            target = self.rendezvous / path
            if ".." in target.parts or not target.is_relative_to(self.rendezvous):
                raise OSError(f"the file {path!r} is outside of the rendezvous folder")
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.write_text(text)
            # scripts are for running; the rest is for reading
            target.chmod(0o700 if text.startswith("#!") else 0o600)


def key_of(folder: Path) -> TaskKey:
    """The task whose folder this is."""
    namespace, _, name = folder.name.partition(".")
    return TaskKey(namespace=namespace, name=name)


def job_folders(home: Home, namespace: str, job_uid: str, *, outputs: bool) -> list[Path]:
    """The folders that the tasks of a job share."""
    folders = [home.sandboxes / namespace / job_uid]
    if outputs:
        folders.append(home.output / namespace / job_uid)
    return folders


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


def empty(trash: Path) -> list[str]:
    """Remove what lies in the trash; what could not be removed, and why. Takes its time."""
    problems: list[str] = []

    def note(_: Any, path: str, error: Any) -> None:
        problems.append(f"{path}: {error[1]}")

    for item in list(trash.iterdir()):
        _make_writable(item)
        shutil.rmtree(item, onerror=note)
    return problems


def _make_writable(folder: Path) -> None:
    """A task may have left folders that even their owner cannot change."""
    if os.geteuid() == 0 and sys.platform == "linux":
        return
    for path, names, _ in os.walk(folder, topdown=True):
        for name in names:
            inner = Path(path, name)
            if not inner.is_symlink():
                inner.chmod(0o700)
