"""What a trainer calls: stage a state, commit its step; hashing and writing happen in a thread.

`stage` copies the state into one half of a double buffer and returns: the training may go on and
change it. `commit` says that the step is committed, which makes the copy one that a successor may use,
and wakes the thread that writes it to disk. While one half is being written the other takes newer
states, so a slow disk makes checkpoints rarer and never holds up a step.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.elastic.checkpoint import durable, layout
from shoal.elastic.checkpoint.buffer import Buffer
from shoal.elastic.checkpoint.memory import committed, discard, place_for
from shoal.elastic.errors import CheckpointError

__all__ = ["Saver"]

_log = logging.getLogger(__name__)


class Saver:
    """Writes the checkpoints of one folder; of a job, only the process of rank 0 calls it.

    `publish` asks the coordinator (see `durable.Publish`); without one the rename alone publishes.
    `keep` is how many checkpoints stay on disk. `memory` says where the double buffer lies (see
    `memory.place_for`): False keeps it in private memory, as does a place without room, which is logged.

    Thread-safe, but only one thread stages and commits. Nothing is made before the first `prepare` or
    `stage`. A disk that fails raises nothing here: see `take_error`.

    Raises:
        ValueError: `keep` is less than one.
    """

    def __init__(
        self,
        folder: Path,
        *,
        publish: durable.Publish | None = None,
        keep: int = 2,
        memory: bool | Path = True,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least one checkpoint has to stay")
        self._folder = folder
        self._publish = publish
        self._keep = keep
        self._place = place_for(folder, memory)
        self._lock = threading.Lock()
        self._error: CheckpointError | None = None
        self._durable_step: int | None = None
        self._closed = False
        self._buffer: Buffer | None = None
        self._thread: threading.Thread | None = None

    @property
    def durable_step(self) -> int | None:
        """The step of the newest checkpoint that this saver has on disk; None before the first."""
        with self._lock:
            return self._durable_step

    def prepare(self, state: Mapping[str, Any]) -> None:
        """Make room for states like this one, so that the first two `stage` need not.

        Nothing is copied; 80 ms for 256 MiB.

        Raises:
            CheckpointError: `Unsupported`, naming what in the state cannot be saved.
        """
        try:
            self._opened().prepare(state)
        except OSError as error:
            self._fail(CheckpointError("NoSpace", f"no memory for a copy of the state: {error}"))

    def stage(self, state: Mapping[str, Any], step: int) -> None:
        """Copy the state of an applied step; when this returns the state may change.

        It takes the place of what was staged and not committed. Tensors of a GPU are waited for.

        Raises:
            CheckpointError: `Unsupported`, naming what in the state cannot be saved.
        """
        try:
            self._opened().stage(state, step)
        except OSError as error:
            self._fail(CheckpointError("NoSpace", f"no memory for a copy of step {step}: {error}"))

    def commit(self, step: int, epoch: int = 0) -> bool:
        """All steps up to `step` are committed: what is staged of them becomes a checkpoint.

        `epoch` is that of the view in which it was committed (0: no views). True if there was one.
        """
        return self._buffer is not None and self._buffer.commit(step, epoch)

    def forget(self) -> None:
        """What is staged will never be committed: this process was fenced."""
        if self._buffer is not None:
            self._buffer.forget()

    def save(self, state: Mapping[str, Any], step: int, epoch: int = 0) -> None:
        """Stage and commit at once: a step that is known to be committed.

        Raises:
            CheckpointError: `Unsupported`, naming what in the state cannot be saved.
        """
        self.stage(state, step)
        self.commit(step, epoch)

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until what was committed is on disk, or has failed; False when the time is up."""
        return self._buffer is None or self._buffer.wait(timeout_seconds)

    def take_error(self) -> CheckpointError | None:
        """What went wrong in the background since the last call, the newest if several; each once.

        The checkpoint before stays, and the next commit tries again.
        """
        with self._lock:
            error, self._error = self._error, None
            return error

    def close(self, timeout_seconds: float = 60.0) -> bool:
        """Write what was committed, and remove the copy in memory; False when the disk takes too long.

        Then the copy stays until this process is gone and `memory.discard` is called. Happens by itself
        when the interpreter ends. Staging afterwards is a RuntimeError.
        """
        self._closed = True
        atexit.unregister(self.close)
        if self._buffer is None or self._thread is None:
            return True
        self._buffer.finish()
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            return False
        self._buffer.remove()
        return True

    def _opened(self) -> Buffer:
        if self._closed:
            raise RuntimeError("this saver is closed: nothing would write what is staged now")
        if self._buffer is None:
            copies = [] if self._place is None else committed(self._place)
            sequence = durable.next_sequence(self._folder, [header.sequence for _, header in copies])
            self._buffer = Buffer(self._place, sequence)
            self._thread = threading.Thread(target=self._write_all, name="shoal-checkpoint", daemon=True)
            self._thread.start()
            atexit.register(self.close)
        return self._buffer

    def _write_all(self) -> None:
        assert self._buffer is not None
        while True:
            try:
                if not self._write_next(self._buffer):
                    return
            except CheckpointError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 (a thread that dies in silence saves nothing more)
                self._fail(CheckpointError("WriteFailed", f"a checkpoint cannot be written: {error!r}"))
            finally:
                self._buffer.give_back()

    def _write_next(self, buffer: Buffer) -> bool:
        content = buffer.borrow()
        if content is None:
            return False
        places = layout.hashed(content.places, content.tensors)
        buffer.vouch(places)
        head = content.header
        source = durable.Source(
            head.sequence, head.step, head.epoch, content.plain, places, content.tensors
        )
        durable.write(self._folder, source, self._publish, self._keep)
        with self._lock:
            self._durable_step = head.step
        if self._place is not None:
            discard(self._place)  # what dead writers left is not needed any more
        return True

    def _fail(self, error: CheckpointError) -> None:
        _log.warning("%s", error)
        with self._lock:
            self._error = error
