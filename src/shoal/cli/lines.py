"""The output of several tasks on one terminal: whole lines, each with its task's name before it.

In a pipe the bytes are the tasks' own and are passed on as they are, whatever their encoding. One task
alone is passed on as it comes; as soon as there are two, a line is held until it is complete, so that
two tasks never share one.

On a terminal, unless `raw`:

- Progress bars (frames that end in a carriage return) of several tasks are shown below the lines, the
  newest frame of each task, drawn at most ten times a second.
- Escape sequences other than colours are left out: a log must not move the cursor, change the
  clipboard or the window's title.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from shoal.cli import output
from shoal.cli.output import terminal_width
from shoal.objects.text import RANKS, enabled

if TYPE_CHECKING:
    from shoal.client.logs import LogRecord

_LONGEST_HELD = 64 * 1024
_DRAWN_EACH_SECONDS = 0.1
_MOST_FRAMES = 16
"""Progress bars shown at the same time: more would not leave room for lines."""

_ESCAPE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # control sequence
    rb"|[\]PX^_].*?(?:\x07|\x1b\\)"  # operating system command and other strings
    rb"|[ -/]*[0-Z\\^-~])"
    rb"|\xc2[\x80-\x9f]"  # the same controls in eight bits, as UTF-8
    rb"|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f]",
    re.DOTALL,
)
_BEGUN_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]{0,256}\x1b?|[ -/]*)?\Z|\xc2\Z")
_COLOUR = re.compile(rb"\x1b\[[0-9;:]*m")
_RETURN = re.compile(rb"\r(?!\n)")

TaskId = tuple[str, int]
"""Role and index."""


class TaskLines:
    """Writes records to a binary stream. `prefixed`: False passes everything on bare. Thread-safe."""

    def __init__(self, stream: Any = None, *, prefixed: bool = True, raw: bool = False) -> None:
        self._stream = sys.stdout.buffer if stream is None else stream
        self._prefixed = prefixed
        self._coloured = prefixed and enabled(self._stream)
        self._safe = not raw and bool(self._stream.isatty())
        """Whether a terminal is to be protected; then progress bars are drawn as well."""
        self._lock = threading.Lock()
        self._prefixes: dict[TaskId, bytes] = {}
        self._held: dict[TaskId, bytearray] = {}
        self._begun: dict[TaskId, bytes] = {}
        """The beginning of an escape sequence that is not complete yet."""
        self._drawn = 0
        """Progress bars that stand below the last line."""
        self._drawn_at = 0.0
        self._open: TaskId | None = None
        """The task that has an unfinished line on the terminal."""
        self.written = False

    def write(self, record: LogRecord) -> None:
        """Pass on some of a task's output.

        Raises:
            BrokenPipeError: the reader of the stream has gone.
        """
        with self._lock:
            self.written = True
            task, data = (record.role, record.index), record.data
            if self._safe:
                data = self._sanitised(task, data)
            if record.missing_bytes:
                data = b"[%d bytes of the log are gone]\n" % record.missing_bytes + data
            if not self._prefixed:
                self._stream.write(data)
            elif self._alone(task):
                self._stream.write(self._as_it_comes(task, data))
            else:
                lines = self._whole_lines(task, data)
                self._stream.write(self._erased() + lines if lines else b"")
                self._draw()
            self._stream.flush()

    def say(self, message: str) -> None:
        """A message on stderr, above the progress bars."""
        with self._lock:
            if self._drawn:
                self._stream.write(self._erased())
                self._stream.flush()
            output.say(message)

    def finish(self) -> None:
        """Write what is held of unfinished lines."""
        with self._lock:
            out = self._erased()
            if self._open is not None:
                out += b"\n"
            out += b"".join(
                self._prefix(task) + self._shown(bytes(held)) + b"\n"
                for task, held in self._held.items()
                if held
            )
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
        if self._safe:
            body = _RETURN.sub(b"\r" + prefix.replace(b"\\", rb"\\"), body)
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
            out += b"".join(prefix + self._shown(line) + b"\n" for line in lines)
        if self._safe:  # of frames that were overwritten nothing is kept
            del held[: max(0, held.rfind(b"\r", 0, -1))]
        return out

    def _shown(self, line: bytes) -> bytes:
        """A line as a terminal would leave it: the last frame of a progress bar, its colours ended."""
        if not self._safe:
            return line
        frame = line.rstrip(b"\r").rpartition(b"\r")[2]
        return frame + b"\x1b[0m" if b"\x1b[" in frame else frame

    def _sanitised(self, task: TaskId, data: bytes) -> bytes:
        """The data without escape sequences other than colours; one may come in two pieces."""
        data = self._begun.pop(task, b"") + data
        if begun := _BEGUN_ESCAPE.search(data):
            self._begun[task], data = begun[0], data[: begun.start()]
        return _ESCAPE.sub(_colours_only, data)

    def _draw(self) -> None:
        """Draw the newest frame of each progress bar, if it is time and the terminal is known."""
        now, width = time.monotonic(), terminal_width(self._stream) if self._safe else None
        if width is None or (now - self._drawn_at < _DRAWN_EACH_SECONDS and self._drawn):
            return
        frames = sorted((task, held) for task, held in self._held.items() if b"\r" in held)
        out = self._erased()
        for task, held in frames[:_MOST_FRAMES]:
            prefix = self._prefix(task)
            room = width - 1 - len(f"[{task[0]} {task[1]}] ")
            text = _COLOUR.sub(b"", self._shown(bytes(held))).decode(errors="replace")
            out += prefix + text.expandtabs()[: max(0, room)].encode() + b"\n"
            self._drawn += 1
        self._drawn_at = now
        self._stream.write(out)

    def _erased(self) -> bytes:
        """What takes the progress bars off the terminal."""
        drawn, self._drawn = self._drawn, 0
        return b"\x1b[%dA\r\x1b[J" % drawn if drawn else b""

    def _prefix(self, task: TaskId) -> bytes:
        known = self._prefixes.get(task)
        if known is None:
            text = f"[{task[0]} {task[1]}]"
            if self._coloured:
                code = RANKS[len(self._prefixes) % len(RANKS)]
                text = f"\x1b[{code}m{text}\x1b[0m"
            known = self._prefixes[task] = f"{text} ".encode()
        return known


def _colours_only(found: re.Match[bytes]) -> bytes:
    sequence = found[0]
    return sequence if sequence.startswith(b"\x1b[") and sequence.endswith(b"m") else b""


class JsonLines:
    """The same records for programs: one document a line. Bytes that are no UTF-8 are replaced."""

    def __init__(self) -> None:
        self.written = False

    def write(self, record: LogRecord) -> None:
        """Pass on some of a task's output."""
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
        output.write_json(document, lines=True)

    def finish(self) -> None:
        """Nothing is held back."""
