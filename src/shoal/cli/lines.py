"""Output of many tasks on one terminal: whole lines, each with its task's name before it.

The bytes are the tasks' own and are passed on as they are, whatever their encoding. One task alone is
passed on as it comes, progress bars included; as soon as there are two, a line is held until it is
complete, so that two tasks never share one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from shoal.cli.text import RANKS, enabled

if TYPE_CHECKING:
    from shoal.client.logs import LogRecord

__all__ = ["JsonLines", "TaskLines"]

_LONGEST_HELD = 64 * 1024

TaskId = tuple[str, int]
"""Role and index."""


class TaskLines:
    """Writes records to a binary stream. `prefixed`: False passes everything on bare."""

    def __init__(self, stream: Any = None, *, prefixed: bool = True) -> None:
        self._stream = sys.stdout.buffer if stream is None else stream
        self._prefixed = prefixed
        self._coloured = prefixed and enabled(self._stream)
        self._prefixes: dict[TaskId, bytes] = {}
        self._held: dict[TaskId, bytearray] = {}
        self._open: TaskId | None = None
        """The task whose unfinished line stands on the terminal."""
        self.written = False

    def write(self, record: LogRecord) -> None:
        """Pass on some of a task's output.

        Raises:
            BrokenPipeError: nobody reads any more.
        """
        self.written = True
        task, data = (record.role, record.index), record.data
        if record.missing_bytes:
            data = b"[%d bytes of the log are gone]\n" % record.missing_bytes + data
        if not self._prefixed:
            self._stream.write(data)
        elif self._alone(task):
            self._stream.write(self._as_it_comes(task, data))
        else:
            self._stream.write(self._whole_lines(task, data))
        self._stream.flush()

    def finish(self) -> None:
        """Write what is held of unfinished lines."""
        out = b"".join(
            self._prefix(task) + bytes(held) + b"\n" for task, held in self._held.items() if held
        )
        if self._open is not None:
            out = b"\n" + out
        self._held.clear()
        self._open = None
        if out:
            self._stream.write(out)
        self._stream.flush()

    def _alone(self, task: TaskId) -> bool:
        self._prefix(task)
        return len(self._prefixes) == 1

    def _as_it_comes(self, task: TaskId, data: bytes) -> bytes:
        prefix = self._prefix(task)
        begun = prefix if self._open is None and data else b""
        ended = data.endswith(b"\n")
        self._open = None if ended or (not data and self._open is None) else task
        body = data[:-1] if ended else data
        return begun + body.replace(b"\n", b"\n" + prefix) + (b"\n" if ended else b"")

    def _whole_lines(self, task: TaskId, data: bytes) -> bytes:
        out = b""
        if self._open is not None:  # the first task was alone until now, in the middle of a line
            out, self._open = b"\n", None
        held = self._held.setdefault(task, bytearray())
        held += data
        complete = held.rfind(b"\n") + 1
        if not complete and len(held) > _LONGEST_HELD:
            held += b"\n"
            complete = len(held)
        if complete:
            prefix = self._prefix(task)
            lines = bytes(held[: complete - 1]).split(b"\n")
            del held[:complete]
            out += b"".join(prefix + line + b"\n" for line in lines)
        return out

    def _prefix(self, task: TaskId) -> bytes:
        known = self._prefixes.get(task)
        if known is None:
            text = f"[{task[0]} {task[1]}]"
            if self._coloured:
                code = RANKS[len(self._prefixes) % len(RANKS)]
                text = f"\x1b[{code}m{text}\x1b[0m"
            known = self._prefixes[task] = f"{text} ".encode()
        return known


class JsonLines:
    """The same records for programs: one document a line. Bytes that are no UTF-8 are replaced."""

    def __init__(self) -> None:
        self.written = False

    def write(self, record: LogRecord) -> None:
        """Pass on some of a task's output."""
        from shoal.cli.output import write_json

        self.written = True
        document = {
            "role": record.role,
            "index": record.index,
            "incarnation": record.incarnation,
            "at": record.at,
            "text": record.data.decode(errors="replace"),
        }
        if record.missing_bytes:
            document["missingBytes"] = record.missing_bytes
        write_json(document, lines=True)

    def finish(self) -> None:
        """Nothing is held back."""
