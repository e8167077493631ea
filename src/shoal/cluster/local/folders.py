"""The folders of a task and of its job on this node: made at launch, removed when they are not needed.

    nodes/NODE/tasks/NS.TASK/       shared with the supervisor; hidden from the task
    nodes/NODE/work/NS.TASK/        the task's own: scratch/ and rendezvous/, gone with its attempt
    output/NS/JOB_UID/              shared by the job's tasks, kept
    logs/NS/JOB_UID/...             see `shoal.history.segments`
    sandboxes/NS/JOB_UID/           see `isolation.sandbox`, which makes and removes it

What is to go is first moved to the node's trash, which is one step, and removed at leisure.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from shoal.cluster.local.home import Home, NodeHome
from shoal.history import segments
from shoal.objects.task import TaskBootstrap, TaskKey, TaskSpec

__all__ = ["TaskFolders", "discard", "key_of"]


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
