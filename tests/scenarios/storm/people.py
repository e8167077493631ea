"""People in front of a server that dies again and again: they ask until they know that it is done."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from shoal.client import Client
from shoal.objects import codec
from shoal.objects.errors import Conflict, Exists, NotFound, Unavailable
from shoal.objects.job import FINISHED, Job, JobSpec
from shoal.objects.kinds import JOB
from shoal.objects.meta import Metadata

__all__ = ["PATIENCE_SECONDS", "People"]

T = TypeVar("T")

PATIENCE_SECONDS = 60.0
"""For what takes a second or two, a restarted server included, on a machine that may be busy."""
_POLL_SECONDS = 0.05


class People:
    """Verbs that end only when they are done. Not thread-safe."""

    def __init__(self, home: Path) -> None:
        self.client = Client.connect(home)
        self.made: list[str] = []
        """The names of all jobs that were created and not deleted."""

    def close(self) -> None:
        """Let go of the server."""
        self.client.close()

    def insist(self, ask: Callable[[], T], patience_seconds: float = PATIENCE_SECONDS) -> T:
        """Ask until there is an answer.

        Raises:
            Unavailable: there is none for too long.
        """
        deadline = time.monotonic() + patience_seconds
        while True:
            try:
                return ask()
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)

    def until(
        self,
        holds: Callable[[], Any],
        what: Callable[[], object] | str,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Wait until it holds; the server may be away meanwhile.

        Raises:
            TimeoutError: it does not for too long.
        """
        deadline = time.monotonic() + patience_seconds
        while True:
            try:
                if holds():
                    return
            except Unavailable:
                pass  # it is starting again
            if time.monotonic() > deadline:
                said = what if isinstance(what, str) else what()
                raise TimeoutError(f"not within {patience_seconds:g} s: {said}")
            time.sleep(_POLL_SECONDS)

    def create(self, name: str, spec: JobSpec | dict[str, Any]) -> Job:
        """Create a job, exactly one, whatever happens to the server."""
        spec = spec if isinstance(spec, JobSpec) else codec.decode(codec.encode(spec), JobSpec)
        job = Job(metadata=Metadata(name=name), spec=spec)

        def once() -> Job:
            try:
                return self.client.create(job)
            except Exists:
                return self.look(name)  # the last time was heard, only the answer was lost

        made = self.insist(once)
        self.made.append(name)
        return made

    def look(self, name: str) -> Job:
        """The job as it is now."""
        return self.insist(lambda: self.client.get(Job, "default", name))

    def edit(self, name: str, **spec: Any) -> Job:
        """Change fields of a job's spec."""

        def change(job: Job) -> Job:
            return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, **spec))

        def once() -> Job | None:
            try:
                return self.client.edit(Job, "default", name, change)
            except Conflict:
                return None

        while (edited := self.insist(once)) is None:
            continue
        return edited

    def phase(self, name: str, *phases: str) -> Job:
        """Wait until the job is in one of these phases."""

        def there() -> bool:
            return self.client.get(Job, "default", name).status.phase in phases

        self.until(there, lambda: f"{name} is {' or '.join(phases)}: {self.describe(name)}")
        return self.look(name)

    def finished(self, name: str) -> Job:
        """Wait until the job has ended."""
        return self.phase(name, *FINISHED)

    def describe(self, name: str) -> object:
        """The job's status, for a message."""
        try:
            return codec.builtins(self.look(name).status)
        except NotFound:
            return "not there"

    def delete_all(self) -> None:
        """Delete every job that was made, and wait until it is gone."""
        for name in self.made:
            self.insist(partial(self._delete, name))
        for name in self.made:
            self.until(partial(self._gone, name), partial(self._not_gone, name))
        self.made.clear()

    def _delete(self, name: str) -> None:
        try:
            self.client.delete(JOB, "default", name)
        except NotFound:
            return

    def _not_gone(self, name: str) -> str:
        return f"{name} is deleted: {self.describe(name)}"

    def _gone(self, name: str) -> bool:
        try:
            self.client.get(Job, "default", name)
        except NotFound:
            return True
        return False
