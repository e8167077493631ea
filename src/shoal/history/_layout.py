# ruff: noqa: PTH116, PTH208
# pathlib would double what this module costs, and the supervisor of every task pays for it.
"""How the files of a log are named and what its indexes say: what writer and reader share.

Everything here takes the files as it finds them: one that has gone since is not there, a line that
cannot be right is passed over. Standard library only.
"""

from __future__ import annotations

import os

_OFFSET_DIGITS = 12


def log_path(directory: str, start: int) -> str:
    """The bytes of the segment that begins at this offset of the log."""
    return f"{directory}/{start:020d}.log"


def index_path(directory: str, start: int) -> str:
    """The times of that segment."""
    return f"{directory}/{start:020d}.index"


def segments(directory: str) -> list[tuple[int, int]]:
    """(first offset, length) of each segment, in order; a later one's presence means that the length
    of those before it is final, so names are read first and sizes after."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    found: list[tuple[int, int]] = []
    for start in sorted(int(n[:-4]) for n in names if n.endswith(".log") and n[:-4].isdigit()):
        try:
            found.append((start, os.stat(log_path(directory, start)).st_size))
        except FileNotFoundError:
            continue
    return found


def only_segment(directory: str) -> int | None:
    """The first offset of the only segment; None when there are several, or none."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return None
    logs = [name[:-4] for name in names if name.endswith(".log")]
    return int(logs[0]) if len(logs) == 1 and logs[0].isdigit() else None


def index_line(at: float, offset: int) -> bytes:
    """One entry. Its first newline ends a line that was torn; the fixed width identifies such a line."""
    return f"\n{at:.3f} {offset:0{_OFFSET_DIGITS}d}\n".encode()


def entries(path: str, length: int, begin: int = 0, size: int = 1 << 40) -> list[tuple[float, int]]:
    """The believable entries (wall time, offset within the segment) in a part of an index: whole
    lines only, times and offsets rising, no offset beyond the segment's `length`."""
    with Opened(path) as descriptor:
        if descriptor < 0:
            return []
        return _parsed(os.pread(descriptor, min(size, os.fstat(descriptor).st_size), begin), length)


def _parsed(part: bytes, length: int) -> list[tuple[float, int]]:
    lines = part.split(b"\n")
    found: list[tuple[float, int]] = []
    last_at, last_offset = 0.0, -1
    for line in lines[1:-1]:  # the first and the last are empty, or cut by `begin` and `size`
        words = line.split()
        if len(words) != 2 or len(words[1]) != _OFFSET_DIGITS:
            continue
        try:
            at, offset = float(words[0]), int(words[1])
        except ValueError:
            continue
        if at < last_at or not last_offset <= offset <= length:
            continue
        if offset == last_offset:
            found.pop()  # the bytes that it was to date never came
        found.append((at, offset))
        last_at, last_offset = at, offset
    return found


def entries_from(path: str, length: int, position: int) -> list[tuple[float, int]]:
    """Entries from the one that dates `position` on. Read from the end: followers are near it."""
    with Opened(path) as descriptor:
        if descriptor < 0:
            return []
        window = 4096
        if len(part := os.pread(descriptor, window + 1, 0)) <= window:  # all of most indexes
            return _entries_from(_parsed(part, length), position)
        size = os.fstat(descriptor).st_size
        while True:
            part = os.pread(descriptor, min(window, size), max(0, size - window))
            found = _parsed(part, length)
            if window >= size or (found and found[0][1] <= position):
                break
            window *= 8
    return _entries_from(found, position)


def _entries_from(found: list[tuple[float, int]], position: int) -> list[tuple[float, int]]:
    first = 0
    for place, entry in enumerate(found):
        if entry[1] <= position:
            first = place
    return found[first:]


class Opened:
    """A file open for reading; its descriptor is -1 when it is not there."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> int:
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._descriptor = -1
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
