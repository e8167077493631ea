"""Logs as folders of segments (`shoal.history.segments`) below one root.

On the local cluster supervisors write them and all components read them; a cluster that fetches its
tasks' output from elsewhere appends here. A log counts as ended when no writer has it open, which also
holds for one with a writer that was killed.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from shoal.history import segments
from shoal.history.base import LogChunk, LogKey
from shoal.objects.errors import Invalid
from shoal.objects.meta import Stamp


class FileLogs:
    """See `shoal.history.base.Logs`. Keeps nothing open and remembers nothing."""

    def __init__(
        self, root: Path, max_segment_bytes: int = 16 * 1024 * 1024, max_segments: int = 8
    ) -> None:
        self._root = root
        self._max_segment_bytes = max_segment_bytes
        self._max_segments = max_segments
        self._writing = threading.Lock()

    def keys(
        self,
        namespace: str,
        job: str,
        job_uid: str = "",
        *,
        role: str = "",
        index: int | None = None,
    ) -> tuple[LogKey, ...]:
        found: list[LogKey] = []
        for folder in self._jobs(namespace, job, job_uid):
            tasks = [task for name in _names(folder) if (task := _task_of(name)) is not None]
            found += [
                LogKey(
                    namespace=namespace,
                    job=job,
                    job_uid=folder.name,
                    role=task[0],
                    index=task[1],
                    incarnation=task[2],
                )
                for task in sorted(tasks)
                if role in ("", task[0]) and index in (None, task[1])
            ]
        return tuple(found)

    def read(
        self,
        key: LogKey,
        *,
        offset: int = 0,
        since: Stamp = 0.0,
        tail_lines: int = 0,
        chunk_bytes: int = segments.CHUNK_BYTES,
    ) -> Iterator[LogChunk]:
        reader = segments.Reader(self._directory(key))
        if tail_lines > 0:
            offset = max(offset, reader.tail_offset(tail_lines))
        for at, place, data in reader.read(offset, since, chunk_bytes):
            yield LogChunk(key=key, at=at, offset=place, data=data)

    def append(self, key: LogKey, at: Stamp, data: bytes) -> None:
        """See `Logs.append`.

        Raises:
            OSError: the log's folder cannot be made.
        """
        with self._writing:
            segments.create(
                str(self._root), key.namespace, key.job, key.job_uid, key.role, key.index,
                key.incarnation,
            )  # fmt: skip
            writer = segments.Writer(self._directory(key), self._max_segment_bytes, self._max_segments)
            try:
                writer.write(data, at)
            finally:
                writer.close()

    def forget(self, namespace: str, job_uid: str) -> None:
        _check(namespace, job_uid)
        shutil.rmtree(self._root / namespace / job_uid, ignore_errors=True)

    def trim(self, max_bytes: int, max_age_seconds: float, now: Stamp) -> int:
        logs: list[tuple[Stamp, int, Path]] = []
        for folder in (job for namespace in _folders(self._root) for job in _folders(namespace)):
            for task in _folders(folder):
                reader = segments.Reader(str(task))
                logs.append((reader.last_at, reader.kept_bytes, task))
        total, gone = sum(size for _, size, _ in logs), 0
        for last_at, size, task in sorted(logs):
            over = total > max_bytes or now - last_at > max_age_seconds
            if over and not segments.Reader(str(task)).growing:
                self._drop(task)
                total, gone = total - size, gone + size
        return gone

    def _directory(self, key: LogKey) -> str:
        _check(key.namespace, key.job_uid, key.role)
        return segments.task_directory(
            str(self._root), key.namespace, key.job_uid, key.role, key.index, key.incarnation
        )

    def _jobs(self, namespace: str, job: str, job_uid: str) -> list[Path]:
        """The folders of the jobs of this name, oldest first."""
        _check(namespace, job_uid or "any")
        folders = [self._root / namespace / job_uid] if job_uid else _folders(self._root / namespace)
        aged = [
            ((folder / "job").stat().st_mtime_ns, folder)
            for folder in folders
            if segments.job_name(str(self._root), namespace, folder.name) == job
        ]
        return [folder for _, folder in sorted(aged)]

    def _drop(self, task: Path) -> None:
        shutil.rmtree(task, ignore_errors=True)
        if not _folders(task.parent):
            shutil.rmtree(task.parent, ignore_errors=True)


def _task_of(name: str) -> tuple[str, int, int] | None:
    """Role, index and incarnation of a log's folder."""
    parts = name.rsplit("-", 2)
    if len(parts) != 3 or not (parts[0] and parts[1].isdigit() and parts[2].isdigit()):
        return None
    return parts[0], int(parts[1]), int(parts[2])


def _folders(parent: Path) -> list[Path]:
    return [parent / name for name in _names(parent)]


def _names(parent: Path) -> list[str]:
    """The folders in a folder; without a call for each, for a job may have ten thousand."""
    try:
        with os.scandir(parent) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


@lru_cache(maxsize=4096)
def _check(*names: str) -> None:
    """The names become folders, so none may lead elsewhere."""
    for name in names:
        if not name or name.startswith(".") or "/" in name or "\0" in name:
            raise Invalid(f"{name!r} cannot be part of a log's place")
