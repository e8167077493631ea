"""State files of a home: written durably, and put aside when they are damaged.

One bad file never stops the rest. A reader that cannot decode a file renames it to `NAME.damaged-TIME`,
reports that in one sentence, and goes on as if the file were absent; what it held is rebuilt from
elsewhere or given up. A process that can record events has `on_damage` give it each such sentence, those
from before included. Standard library only, for the command line and the supervisor use it too.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

__all__ = ["fill", "on_damage", "put_aside", "read", "write"]

T = TypeVar("T")

_reported: list[str] = []
_listeners: list[Callable[[str], None]] = []
_lock = threading.Lock()


def on_damage(listener: Callable[[str], None]) -> Callable[[], None]:
    """Call back with a sentence for each file that this process has put aside, or will; calling the
    result ends that."""
    with _lock:
        known = list(_reported)
        _listeners.append(listener)
    for sentence in known:
        listener(sentence)
    return lambda: _listeners.remove(listener)


def write(path: Path, data: bytes, *, copy: Path | None = None) -> None:
    """Replace the file, whole or not at all; on the disk, name included, when this returns. `copy` is
    written first: see `read`.

    Raises:
        OSError: it cannot be written; the old file is still there.
    """
    if copy is not None:
        write(copy, data)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fill(draft, data, sync=True)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def fill(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Write over what is there, so that the room it takes is used again; for the owner alone.

    Raises:
        OSError: there is no room.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.ftruncate(descriptor, len(data))
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(
    path: Path,
    decode: Callable[[bytes], T],
    report: Callable[[str], None],
    *,
    copy: Path | None = None,
) -> T | None:
    """What the file holds; None when it is absent, or damaged: `decode` raises. Then it is put aside and
    `report` is given a sentence. Where there is a `copy`, it takes the place of the file."""
    found = _read(path, decode, report)
    if found is None and copy is not None:
        found = _read(copy, decode, report)
        if found is not None:
            with contextlib.suppress(OSError):  # a full disk, or another reader: the copy serves as well
                write(path, copy.read_bytes())
    return found


def put_aside(path: Path, why: str, report: Callable[[str], None]) -> None:
    """Rename a damaged file, and report it. Of several readers only one does."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    target = path.with_name(f"{path.name}.damaged-{stamp}")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.damaged-{stamp}.{number}")
    with contextlib.suppress(FileNotFoundError):
        path.rename(target)
        sentence = f"{path} is damaged ({why}); it was moved to {target.name}"
        report(sentence)
        with _lock:
            _reported.append(sentence)
            listeners = list(_listeners)
        for listener in listeners:
            listener(sentence)


def _read(path: Path, decode: Callable[[bytes], T], report: Callable[[str], None]) -> T | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return decode(data)
    except Exception as error:  # noqa: BLE001 (whatever a decoder raises, the file is damaged)
        put_aside(path, str(error), report)
        return None
