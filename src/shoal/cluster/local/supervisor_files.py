"""The files of a task's folder as the supervisor reads and writes them: JSON without the json module.

The supervisor of every task pays for its imports; json brings in regular expressions and would double
its start. What is used instead is the C half of json, which is what does the work there too.

Two files are given their place on the disk before the command starts, so that a full disk cannot lose
how it ended: `exit.json`'s draft, and `status`, in which the init notes the command's end before
anything else happens, for the process that finds the supervisor gone.
"""

from __future__ import annotations

import os
import time
from _json import encode_basestring_ascii, make_scanner

TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    import _signal as signal

_RESERVED_BYTES = 4096
_STATUS_BYTES = 2048


def read(folder: str, name: str) -> dict[str, Any] | None:
    """What the file holds; None when it is absent, or damaged: then it is put aside, which standard
    error says."""
    path = f"{folder}/{name}"
    try:
        return _load(path)
    except ValueError as error:
        aside = f"{path}.damaged-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
        try:
            os.rename(path, aside)
        except FileNotFoundError:
            return None
        os.write(2, f"{path} is damaged ({error}); it was moved to {aside}\n".encode())
        return None


def write(folder: str, name: str, value: dict[str, Any]) -> None:
    """Put the file in place whole; not forced to the disk."""
    draft = f"{folder}/.{name}.{os.getpid()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        _write_all(descriptor, format_json(value).encode())
    finally:
        os.close(descriptor)
    os.replace(draft, f"{folder}/{name}")


class ExitDraft:
    """`exit.json` before it is there. Made early, so that the disk has room for it at the end."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = f"{folder}/.exit.json.draft"
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _write_all(self._descriptor, b" " * _RESERVED_BYTES)

    def publish(self, value: dict[str, Any]) -> None:
        """Put it in place: complete, once, and on the disk when this returns."""
        document = format_json(value).encode()
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        _write_all(self._descriptor, document)
        os.ftruncate(self._descriptor, len(document))
        os.fsync(self._descriptor)
        os.close(self._descriptor)
        os.replace(self._path, f"{self._folder}/exit.json")
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class Status:
    """`status`: how the command ended, in the words of the init, which alone saw it.

    A place that is written over, not a file that is replaced: the init has no view of the folder any
    more when the time comes, only this descriptor.
    """

    def __init__(self, folder: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self.descriptor = os.open(f"{folder}/status", flags, 0o600)
        os.pwrite(self.descriptor, b" " * _STATUS_BYTES, 0)

    def record(self, value: dict[str, Any]) -> None:
        """Note the end; a second note replaces the first."""
        document = format_json(value).encode()
        os.pwrite(self.descriptor, document[:_STATUS_BYTES].ljust(_STATUS_BYTES), 0)

    @staticmethod
    def read(folder: str) -> dict[str, Any] | None:
        """What was noted; None while nothing was, or where the writer was killed in the middle."""
        try:
            return _load(f"{folder}/status")
        except ValueError:
            return None


def parse_json(document: bytes) -> dict[str, Any]:
    """The object that the document is.

    Raises:
        ValueError: it is not one.
    """
    text = document.decode().strip()
    rules: Any = _Strict()
    try:
        value, end = make_scanner(rules)(text, 0)
    except (StopIteration, SystemError):  # the second is how it fails to find json's own error
        raise ValueError("this is not JSON") from None
    found: Any = value
    if end != len(text) or not isinstance(value, dict):
        raise ValueError("this is not one JSON object")
    return found


def format_json(value: Any) -> str:  # Any: what JSON can say
    """The value as JSON; bytes that are no text travel as the surrogates that os.fsencode knows."""
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    items: Any = value
    if isinstance(value, dict):
        pairs = (f"{format_json(key)}: {format_json(item)}" for key, item in items.items())
        return "{" + ", ".join(pairs) + "}"
    return "[" + ", ".join(map(format_json, items)) + "]"


class _Strict:
    """What the scanner asks of a json.JSONDecoder."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}


def _load(path: str) -> dict[str, Any] | None:
    """Raises:
    ValueError: the file is not JSON.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return parse_json(_read_all(descriptor))
    finally:
        os.close(descriptor)


def _read_all(descriptor: int) -> bytes:
    parts = [os.read(descriptor, 1 << 16)]
    while parts[-1]:
        parts.append(os.read(descriptor, 1 << 16))
    return b"".join(parts)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def classify(
    status: dict[str, Any] | None,
    *,
    stop: dict[str, Any] | None = None,
    out_of_memory_kills: int = 0,
    memory_bytes: int | None = None,
    grace_over: bool = False,
) -> dict[str, Any]:
    """`exit_code, signal, reason, message, stop_reason`, from what the init noted.

    `status` None is an end that was not observed. `grace_over`: it was killed after its grace.
    """
    base = {"signal": 0, "message": "", "stop_reason": stop["reason"] if stop else None}
    if status is None:
        return base | {
            "exit_code": -1,
            "reason": "SupervisorLost",
            "message": "the task's supervisor was killed, and the task with it",
        }
    if "reason" in status:
        return base | {key: status[key] for key in ("exit_code", "reason", "message")}
    ended = base | {"exit_code": status["exit_code"], "signal": status["signal"], "reason": "Exited"}
    if out_of_memory_kills and status["exit_code"]:
        limit = "its limit" if memory_bytes is None else f"its limit of {_mebibytes(memory_bytes)}"
        message = f"killed for using more memory than {limit}"
        if out_of_memory_kills > 1:
            message += f" ({out_of_memory_kills} processes)"
        return ended | {"reason": "OutOfMemory", "message": message}
    if not status["signal"]:
        return ended
    how = signal_name(status["signal"])
    message = f"killed by {how}"
    if grace_over and status["signal"] == signal.SIGKILL and stop:
        message = f"killed: it had not ended {stop['grace_seconds']:g} s after SIGTERM"
    return ended | {"reason": "Signalled", "message": message}


def not_started(message: str, stop: dict[str, Any] | None = None) -> dict[str, Any]:
    """The end of a task that never ran its command: asked to stop before, or the machine's fault."""
    if stop is not None:
        number = int(signal.SIGTERM)
        return {
            "exit_code": 128 + number,
            "signal": number,
            "reason": "Signalled",
            "message": "stopped before it was started",
            "stop_reason": stop["reason"],
        }
    return {
        "exit_code": 126,
        "signal": 0,
        "reason": "StartFailed",
        "message": message,
        "stop_reason": None,
    }


def signal_name(number: int) -> str:
    """`SIGSEGV` for 11."""
    for name in dir(signal):
        if name.startswith("SIG") and not name.startswith("SIG_") and getattr(signal, name) == number:
            return name
    return f"signal {number}"


def _mebibytes(count: int) -> str:
    return f"{count / (1 << 20):.4g} MiB"
