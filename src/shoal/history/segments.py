# ruff: noqa: PTH103, PTH105, PTH108, PTH110, PTH116, PTH123
# pathlib would double what this module costs, and the supervisor of every task pays for it.
"""A task's log as files: numbered segments of raw bytes, each with an index of times.

    logs/<namespace>/<job uid>/job                            the job's name
    logs/<namespace>/<job uid>/<role>-<index>-<incarnation>/
        00000000000000000000.log      bytes as the task wrote them
        00000000000000000000.index    lines of `<wall time> <offset within the segment>`
        00000000000016777216.log      the next segment

A segment is named by the offset of its first byte in the whole log, so nothing but the names and sizes
has to survive a crash: where one segment does not begin at the end of the one before, bytes are
missing (the disk was full), and where the first does not begin at 0, the oldest were rotated away.

The index has an entry at most every `INDEX_SECONDS`, written before the bytes that it dates: an entry
dates the bytes from its offset up to the next entry's, all written less than `INDEX_SECONDS` after
its time. Times in it never decrease (a clock that is set back is held until it has caught up). A line
that is torn, or says what cannot be, is ignored.

A writer holds a shared lock (flock) on its open segment, so that clean-up can
distinguish a log with a live writer, however silent, from one with a writer that has ended.

One writer per log; any number of readers, in other processes, at any time. Bytes reach the file as
they come, without a buffer in between, so a killed writer loses nothing that it had accepted; they
are not forced to the disk. Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import time

from shoal import faults
from shoal.history._layout import (
    Opened,
    entries,
    entries_from,
    index_line,
    index_path,
    log_path,
    only_segment,
    segments,
)

TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    from collections.abc import Iterator

INDEX_SECONDS = 0.1
"""The least time between two entries of an index, and so the precision of `since`."""

CHUNK_BYTES = 256 * 1024
"""The most that a reader hands out at once."""

RETRY_SECONDS = 0.25
"""How long a writer that found the disk full drops what comes before it tries again."""

SPARE_FILES = 64
"""Segments beyond `max_segments` that may exist because gaps cut them short."""

_NEVER = float("-inf")


def task_directory(
    root: str, namespace: str, job_uid: str, role: str, index: int, incarnation: int
) -> str:
    """Where the log of this incarnation of a task is, below the folder of all logs."""
    return f"{root}/{namespace}/{job_uid}/{role}-{index}-{incarnation}"


def create(
    root: str, namespace: str, job: str, job_uid: str, role: str, index: int, incarnation: int
) -> str:
    """Make the folder of a task's log and note the job's name beside it; idempotent.

    Raises:
        OSError: it cannot be made.
    """
    directory = task_directory(root, namespace, job_uid, role, index, incarnation)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    name = f"{root}/{namespace}/{job_uid}/job"
    if not os.path.exists(name):
        draft = f"{name}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8") as file:
            file.write(job)
        os.replace(draft, name)
    return directory


def job_name(root: str, namespace: str, job_uid: str) -> str:
    """The name of the job with logs in that folder; empty when it was never recorded."""
    try:
        with open(f"{root}/{namespace}/{job_uid}/job", encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


class Writer:
    """Appends to one log; carries on where an earlier writer of the same folder ended.

    Never raises for what the disk does: bytes that find no room are dropped and counted, and the
    segment begun once there is room is named by its place in the whole log, which leaves the gap
    visible. The oldest segments go once more than `max_segments * max_segment_bytes` are kept.
    Not thread-safe.
    """

    def __init__(
        self, directory: str, max_segment_bytes: int = 16 * 1024 * 1024, max_segments: int = 8
    ) -> None:
        self.directory = directory
        self.dropped_bytes = 0
        """Bytes that this writer could not keep."""
        self.last_error: OSError | None = None
        self._max_segment_bytes = max_segment_bytes
        self._max_bytes = max_segment_bytes * max_segments
        self._max_files = max_segments + SPARE_FILES
        self._log = -1
        self._index = -1
        self._start = 0
        self._length = 0
        self._lost = 0
        self._last_at = 0.0
        self._indexed_at = _NEVER
        self._retry = 0.0
        self._resume()

    @property
    def offset(self) -> int:
        """The offset of the next byte in the whole log; dropped bytes have theirs too."""
        return self._start + self._length + self._lost

    def write(self, data: bytes | bytearray | memoryview, at: float) -> None:
        """Append `data`, written by the task at wall time `at`."""
        if not data:
            return
        self._last_at = at = max(at, self._last_at)
        rest = memoryview(data)
        while rest:
            if not self._ready():
                self._lose(len(rest))
                return
            if at - self._indexed_at >= INDEX_SECONDS:
                self._add_to_index(at)
            try:
                written = os.write(self._log, rest[: self._max_segment_bytes - self._length])
            except OSError as error:
                self._fail(error)
                self._lose(len(rest))
                return
            self._length += written
            rest = rest[written:]
        faults.point("history.segment.written")

    def close(self) -> None:
        """Let go of the files, after a last try to make a gap at the end visible; idempotent."""
        if self._lost:
            self._retry = 0.0
            self._ready()
        self._close_files()

    def _resume(self) -> None:
        found = segments(self.directory)
        if found:
            self._start, self._length = found[-1]
            self._last_at = Reader(self.directory).last_at
        self._ready()

    def _ready(self) -> bool:
        """True when the open segment has room by our own rules; opens the next if need be."""
        if self._log >= 0 and not self._lost and self._length < self._max_segment_bytes:
            return True
        if self._retry and time.monotonic() < self._retry:
            return False
        start, length = self._start, self._length
        if self._lost or length >= self._max_segment_bytes:
            start, length = self.offset, 0
        try:
            self._open(start)
            if start > self._start and self._length == 0:
                self._remove(self._start)  # never came to hold anything: the disk was full
        except OSError as error:
            self._fail(error)
            return False
        self._start, self._length, self._lost, self._retry = start, length, 0, 0.0
        self._rotate()
        return True

    def _open(self, start: int) -> None:
        self._close_files()
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        flags = os.O_CREAT | os.O_APPEND | os.O_RDWR | os.O_CLOEXEC
        self._log = os.open(log_path(self.directory, start), flags, 0o600)
        fcntl.flock(self._log, fcntl.LOCK_SH)
        faults.point("history.segment.opened")
        self._index = os.open(index_path(self.directory, start), flags, 0o600)
        self._indexed_at = _NEVER

    def _add_to_index(self, at: float) -> None:
        line = index_line(at, self._length)
        try:
            whole = os.write(self._index, line) == len(line)
        except OSError as error:
            self.last_error = error
            return
        if whole:
            self._indexed_at = at

    def _rotate(self) -> None:
        found = segments(self.directory)
        kept = sum(length for _, length in found) + self._max_segment_bytes - self._length
        for start, length in found[:-1]:
            if kept <= self._max_bytes and len(found) <= self._max_files:
                break
            self._remove(start)
            kept -= length
            found = found[1:]
            faults.point("history.segment.dropped")

    def _remove(self, start: int) -> None:
        for path in (index_path(self.directory, start), log_path(self.directory, start)):
            try:
                os.unlink(path)
            except OSError as error:
                self.last_error = error

    def _lose(self, count: int) -> None:
        self._lost += count
        self.dropped_bytes += count

    def _fail(self, error: OSError) -> None:
        self.last_error = error
        self._close_files()
        self._retry = time.monotonic() + RETRY_SECONDS

    def _close_files(self) -> None:
        for descriptor in (self._log, self._index):
            if descriptor >= 0:
                os.close(descriptor)
        self._log = self._index = -1


class Reader:
    """Reads one log, while it is written or afterwards. To follow it, call `read` from the end of
    the last chunk again whenever `size` has grown. Keeps nothing open; thread-safe."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    @property
    def start(self) -> int:
        """The offset of the first byte that is kept."""
        found = segments(self.directory)
        return found[0][0] if found else 0

    @property
    def size(self) -> int:
        """The length of the whole log, rotated and missing bytes included."""
        found = segments(self.directory)
        return sum(found[-1]) if found else 0

    @property
    def kept_bytes(self) -> int:
        """How much of the log is there."""
        return sum(length for _, length in segments(self.directory))

    @property
    def last_at(self) -> float:
        """When something was written last, to `INDEX_SECONDS`; 0: never."""
        for start, length in reversed(segments(self.directory)):
            if length == 0:
                continue
            dated = entries_from(index_path(self.directory, start), length, length)
            return dated[-1][0] if dated else self._modified(start)
        return 0.0

    @property
    def growing(self) -> bool:
        """True while a writer has the log open."""
        found = segments(self.directory)
        if not found:
            return False
        with Opened(log_path(self.directory, found[-1][0])) as descriptor:
            if descriptor < 0:
                return False
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def read(
        self, offset: int = 0, since: float = 0.0, chunk_bytes: int = CHUNK_BYTES
    ) -> Iterator[tuple[float, int, bytes]]:
        """What is kept from `offset` on and was written at `since` or later, as it is now, in order:
        (wall time of the first byte, its offset in the whole log, at most `chunk_bytes` bytes).

        A jump between the end of a chunk and the offset of the next is a gap. Between two chunks no file
        is open and `chunk_bytes` at most are held, so thousands of logs can be merged.
        """
        only = only_segment(self.directory) if since <= 0.0 else None
        if only is not None:  # as most logs of a wide job: what it saves counts ten thousand times
            return self._read_segment(only, max(offset, only), chunk_bytes)
        return self._read_segments(offset, since, chunk_bytes)

    def _read_segments(
        self, offset: int, since: float, chunk_bytes: int
    ) -> Iterator[tuple[float, int, bytes]]:
        found = self._contiguous_segments()
        if since > 0.0:
            offset = max(offset, self._offset_at(found, since))
        for start, length in found:
            if offset < start + length:
                yield from self._read_segment(start, max(offset, start), chunk_bytes)

    def tail_offset(self, lines: int) -> int:
        """The offset at which the last `lines` lines begin; an unfinished last line is one too."""
        found = segments(self.directory)
        if lines <= 0 or not found:
            return sum(found[-1]) if found else 0
        wanted = lines
        end = sum(found[-1])
        for start, length in reversed(found):
            with Opened(log_path(self.directory, start)) as descriptor:
                position = length
                while descriptor >= 0 and position > 0:
                    block_start = max(0, position - CHUNK_BYTES)
                    block = os.pread(descriptor, position - block_start, block_start)
                    if start + block_start + len(block) == end and block.endswith(b"\n"):
                        block = block[:-1]  # ends the last line, begins none
                    newlines = block.count(b"\n")
                    if newlines >= wanted:
                        return start + block_start + _nth_last_newline(block, wanted) + 1
                    wanted -= newlines
                    position = block_start
        return found[0][0]

    def _contiguous_segments(self) -> list[tuple[int, int]]:
        """The segments; looked up twice where one seems missing, for a folder that is listed while
        it changes may show a file and not the one made before it."""
        found = segments(self.directory)
        ends = [start + length for start, length in found]
        whole = ends[:-1] == [start for start, _ in found[1:]]
        return found if whole else segments(self.directory)

    def _offset_at(self, found: list[tuple[int, int]], since: float) -> int:
        """Offset of the first byte that may have been written at `since` or later."""
        for place, (start, length) in enumerate(found):
            if place + 1 < len(found) and self._first_time(*found[place + 1]) < since:
                continue  # the next one begins before `since`, so all of this one is older
            for at, position in entries(index_path(self.directory, start), length):
                if at + INDEX_SECONDS > since:
                    return start + position
            if self._first_time(start, length) >= since:
                return start
        return sum(found[-1]) if found else 0

    def _first_time(self, start: int, length: int) -> float:
        dated = entries(index_path(self.directory, start), length, 0, 128)
        return dated[0][0] if dated else self._modified(start)

    def _modified(self, start: int) -> float:
        try:
            return os.stat(log_path(self.directory, start)).st_mtime
        except FileNotFoundError:
            return 0.0

    def _read_segment(
        self, start: int, offset: int, chunk_bytes: int
    ) -> Iterator[tuple[float, int, bytes]]:
        position, end = offset - start, -1
        dated: list[tuple[float, int]] = []
        while end < 0 or position < end:
            with Opened(log_path(self.directory, start)) as descriptor:
                if descriptor < 0:
                    return  # rotated away since it was listed: a gap
                if end < 0:
                    end = os.fstat(descriptor).st_size
                    if position >= end:
                        return
                    index = index_path(self.directory, start)
                    dated = entries_from(index, end, position) or [(self._modified(start), 0)]
                data = os.pread(descriptor, min(chunk_bytes, end - position), position)
            if not data:
                return
            done, last = 0, len(data)
            while done < last:  # cut where the index has entries; drop those of bytes that are done with
                while len(dated) > 1 and dated[1][1] <= position + done:
                    del dated[0]
                until = min(last, dated[1][1] - position) if len(dated) > 1 else last
                yield dated[0][0], start + position + done, data[done:until]
                done = until
            position += last


def _nth_last_newline(block: bytes, count: int) -> int:
    position = len(block)
    for _ in range(count):
        position = block.rfind(b"\n", 0, position)
    return position
