"""When a job's state is kept, and how it is taken up again: checkpoints of committed steps, by rank 0.

Staged at a step boundary by the rank 0 of that moment, committed once the step is known to be, written
by a thread. A job that begins with a first view takes the newest there is; the others get it from their
peers.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.elastic import randomness, threads
from shoal.elastic.errors import CheckpointError, ElasticError
from shoal.elastic.view import Cursor

if TYPE_CHECKING:
    from shoal.elastic.checkpoint.loader import Loaded
    from shoal.elastic.checkpoint.saver import Saver
    from shoal.elastic.membership import Membership
    from shoal.elastic.training import Training

__all__ = ["Keeper"]

_PUBLISH_SECONDS = 30.0


class Keeper:
    """Of one process. All calls but the publishing come from the training thread."""

    def __init__(
        self,
        folder: Path,
        every_seconds: float,
        load_from: Path | None,
        training: Training,
        membership: Membership | None,
        say: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._every = every_seconds
        self._load_from = load_from
        self._training = training
        self._membership = membership
        self._say = say
        self._saver: Saver | None = None
        self._staged: int | None = None
        self._due_at = time.monotonic() + every_seconds
        self._importing: threading.Thread | None = None

    def load(self) -> bool:
        """Become the newest state there is; whether there was one.

        Raises:
            ElasticError: there are checkpoints, and none can be trusted or fits, or they are another
                job's.
        """
        found = _newest(self._folder)
        if self._load_from is not None and (found is None or not _is_own(found)):
            found = _newest(self._load_from)
            if found is None:
                raise ElasticError(f"there is no checkpoint in {self._load_from} (load_from=)")
        elif found is not None and not _is_own(found):
            owner = found.state["job"] or "a run outside the platform"
            raise ElasticError(
                f"the checkpoints in {self._folder} are of another job ({owner}): give this job a "
                "folder of its own; elastic.init(load_from=...) goes on from the state of the other"
            )
        if found is None or found.step <= self._training.applied:
            return False
        terms = self._training.terms
        amiss = terms.resume(found.state["terms"]) if terms is not None else None
        if amiss is not None:
            self._say(amiss)
        cursor = Cursor(*found.state["cursor"])
        self._training.adopt(found.state, found.step, cursor)
        randomness.restore(found.state["random"])
        self._say(f"resumed from the checkpoint of step {found.step}")
        return True

    def look(self) -> None:
        """At a step boundary: stage if it is time, commit what has become committed."""
        training = self._training
        if training.rank != 0:
            if self._saver is not None:
                self._saver.forget()
            self._staged = None
            return
        if self._staged is not None and training.committed >= self._staged:
            assert self._saver is not None
            self._saver.commit(self._staged, training.epoch)
            self._staged = None
        now = time.monotonic()
        if self._staged is None and now >= self._due_at and self._imported():
            self._due_at = now + self._every
            self.stage()
        self._complain()

    def stage(self) -> None:
        """Copy the state of the step that was just applied."""
        from shoal.elastic.checkpoint.saver import Saver

        training = self._training
        if self._saver is None:
            publish = self._publish if self._membership is not None else None
            self._saver = Saver(self._folder, publish=publish)
        state = training.whole() | {"random": randomness.capture(), "job": _job()}
        self._saver.stage(state, training.applied)
        self._staged = training.applied

    def save_last(self) -> None:
        """A loop has ended, its last step is committed: keep the state now, whatever the interval is."""
        training = self._training
        if training.rank != 0 or training.applied == 0:
            return
        self.stage()
        assert self._saver is not None
        self._saver.commit(training.applied, training.epoch)
        self._staged = None
        self._due_at = time.monotonic() + self._every
        self._complain()

    def soon(self) -> None:
        """Stage at the next step boundary at which that can be done."""
        self._due_at = time.monotonic()

    def settle(self) -> None:
        """Wait until what was committed is written and published, or has failed."""
        if self._saver is not None:
            self._saver.wait(_PUBLISH_SECONDS)

    def close(self) -> None:
        """The training is over: the last state is committed and written."""
        training = self._training
        if self._saver is not None and training.group is not None and training.rank == 0:
            if self._staged is not None and training.committed >= self._staged:
                self._saver.commit(self._staged, training.epoch)
            self._complain()
        if self._saver is not None:
            self._saver.close()
            self._complain()

    def _imported(self) -> bool:
        """Whether the writing parts are loaded: half a second, that neither a joiner nor a step waits
        for."""
        if self._importing is None:
            self._importing = threads.start(_import, "shoal-import")
        return not self._importing.is_alive()

    def _publish(self, manifest: Mapping[str, Any]) -> bool:
        """On the saver's thread: whether the coordinator takes it; it refuses a worker that is no
        member.

        Raises:
            TimeoutError: that is not known.
        """
        assert self._membership is not None
        message = {"type": "publish", "epoch": self._training.epoch, "manifest": dict(manifest)}
        answer = self._membership.ask(message, ("published", "refused"), _PUBLISH_SECONDS)
        if answer is None:
            raise TimeoutError("the coordinator does not answer")
        return answer["type"] == "published"

    def _complain(self) -> None:
        error = self._saver.take_error() if self._saver is not None else None
        if error is not None:
            self._say(f"checkpoint failed, training goes on: {error}")


def _newest(folder: Path) -> Loaded | None:
    from shoal.elastic.checkpoint.loader import load

    try:
        return load(folder)
    except CheckpointError as error:
        raise ElasticError(
            f"no checkpoint in {folder} can be read ({error}): move them away to begin anew"
        ) from error


def _job() -> str:
    """The job that this process is of; empty outside the platform."""
    return os.environ.get("SHOAL_JOB_UID", "")


def _is_own(found: Loaded) -> bool:
    return found.state.get("job", _job()) == _job()


def _import() -> None:
    importlib.import_module("shoal.elastic.checkpoint.saver")
