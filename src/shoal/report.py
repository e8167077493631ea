"""Metric points of a training program: `from shoal import report; report(loss=0.3, step=10)`.

Inside a task of Shoal the points go to the platform (`$SHOAL_API`, with the token of the task's job):
`shoal metrics job/NAME` shows them, and an experiment compares its trials by them. Elsewhere they are
appended as JSON lines to the file that `$SHOAL_REPORT_FILE` names, or dropped when it names none.

A call never waits for the network and never fails the program: points go into a queue of
`QUEUE_POINTS`, and a thread sends them in batches. A batch that got no answer is sent again, and the
server keeps each point once (writer and sequence identify it), so a restart of the server loses and
doubles nothing. When the queue is full the oldest points are dropped; at exit the program waits up to
`FLUSH_SECONDS` for the rest. What was dropped is counted, and said once on stderr. A process that is
killed by a signal loses what it reported in its last tenths of a second. A child made by `fork` is a
writer of its own.

Every task may report, and an experiment takes all points of a metric as one series: report from rank 0,
or a value that is the same on all ranks.

Standard library only: this runs inside users' programs.
"""

from __future__ import annotations

import atexit
import codecs
import contextlib
import http.client
import json
import os
import sys
import threading
import time
import types
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol, SupportsFloat

from shoal.task_api import open_connection

__all__ = ["BATCH_POINTS", "FLUSH_SECONDS", "QUEUE_POINTS", "report"]

QUEUE_POINTS = 10_000
BATCH_POINTS = 1_000
FLUSH_SECONDS = 5.0
LONGEST_NAME = 200

_PAUSE_SECONDS = 0.1
"""Points that come within it after a batch are sent together."""
_LONGEST_RETRY_SECONDS = 1.0
_REQUEST_SECONDS = 5.0
_LONGEST_SOCKET_PATH = 107
for _codec in ("ascii", "latin-1", "idna"):
    codecs.lookup(_codec)  # a fork while the thread imports one would leave half of it to the child
_NEEDED = ("SHOAL_API", "SHOAL_TOKEN_FILE", "SHOAL_ROLE", "SHOAL_INDEX")


def report(
    values: Mapping[str, SupportsFloat] | None = None,
    /,
    *,
    step: int | None = None,
    **named: SupportsFloat,
) -> None:
    """Report values of metrics, at a step where there is one; returns at once.

    `report(loss=0.3, step=10)`, or `report({"val/loss": 0.3}, step=10)` for names that are no Python
    identifiers. A value is anything that `float` takes, a tensor of one element included (that waits for
    its device). NaN and infinities are sent as they are.
    """
    _current().add({**(values or {}), **named}, step)


def flush(timeout_seconds: float = FLUSH_SECONDS) -> bool:
    """Wait until everything reported so far is with the platform; False when it is not in time."""
    return _current().flush(timeout_seconds)


class _Sink(Protocol):
    """Where batches go. Called by one thread at a time."""

    def send(self, batch: list[list[Any]]) -> str | None:
        """Deliver points, each `[sequence, name, value, step, at]`; why they are refused for good, or
        None when they are kept.

        Raises:
            OSError, http.client.HTTPException: they may be sent again.
        """
        ...


class _Reporter:
    """The queue of one process and the thread that empties it."""

    def __init__(self, sink: _Sink | None) -> None:
        self.pid = os.getpid()
        self._sink = sink
        self._queue: deque[list[Any]] = deque()
        self._sending = 0
        self._sequence = 0
        self._dropped = 0
        self._said: set[str] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._urgent = 0

    def add(self, values: Mapping[str, SupportsFloat], step: int | None) -> None:
        if self._sink is None:
            return
        points = self._points(values, step)
        with self._changed:
            for point in points:
                self._sequence += 1
                point[0] = self._sequence
                self._queue.append(point)
            while len(self._queue) > QUEUE_POINTS:
                self._queue.popleft()
                self._dropped += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="shoal-report", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            self._urgent += 1
            self._changed.notify_all()
            try:
                while self._queue or self._sending:
                    left = deadline - time.monotonic()
                    if left <= 0 or self._thread is None or not self._thread.is_alive():
                        return False
                    self._changed.wait(left)
            finally:
                self._urgent -= 1
        return True

    def close(self) -> None:
        """At exit: send the rest within the bound, and say what was dropped."""
        if self.pid != os.getpid():
            return
        self.flush(FLUSH_SECONDS)
        with self._changed:
            lost = self._dropped + len(self._queue) + self._sending
        if lost:
            self._say(f"{lost} metric points were dropped: the platform did not take them in time")

    def _points(self, values: Mapping[str, SupportsFloat], step: int | None) -> list[list[Any]]:
        now, points = time.time(), list[list[Any]]()
        try:
            at_step = None if step is None else int(step)
        except (TypeError, ValueError):
            self._say(f"a step is a whole number, not {step!r}: the point is kept without one")
            at_step = None
        for name, value in values.items():
            try:
                number = float(value)
            except Exception as error:  # noqa: BLE001 - a metric must never fail a training step
                self._say(f"metric {name} is not reported: {value!r:.80} is no number ({error})")
                continue
            points.append([0, str(name)[:LONGEST_NAME], _json_number(number), at_step, now])
        return points

    def _run(self) -> None:
        retry = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue)
                batch = [self._queue.popleft() for _ in range(min(BATCH_POINTS, len(self._queue)))]
                self._sending = len(batch)
            refused, failed = self._send(batch)
            with self._changed:
                self._sending = 0
                if failed:
                    retry = min(_LONGEST_RETRY_SECONDS, max(_PAUSE_SECONDS, retry * 2))
                    self._queue.extendleft(reversed(batch))
                else:
                    retry = 0.0
                    self._dropped += len(batch) if refused else 0
                self._changed.notify_all()
                if failed or not self._urgent:
                    self._pause(retry or _PAUSE_SECONDS)
            if refused:
                self._say(f"metric points are refused: {refused}")

    def _pause(self, seconds: float) -> None:
        """Wait, with the lock held, unless a caller of `flush` comes."""
        urgent = self._urgent
        self._changed.wait_for(lambda: self._urgent > urgent, seconds)

    def _send(self, batch: list[list[Any]]) -> tuple[str | None, bool]:
        """Why it is refused for good, and whether it must be sent again."""
        assert self._sink is not None
        try:
            return self._sink.send(batch), False
        except (OSError, http.client.HTTPException):
            return None, True
        except Exception as error:  # noqa: BLE001 - said, and sent again: the thread must not end
            self._say(f"metric points cannot be sent yet: {type(error).__name__}: {error}")
            return None, True

    def _say(self, sentence: str) -> None:
        """Once per sentence: a training loop would repeat it at every step."""
        if sentence in self._said or len(self._said) > 10:
            return
        self._said.add(sentence)
        with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr may be closed or None
            sys.stderr.write(f"shoal.report: {sentence}\n")


class _Platform:
    """The API of the platform, over a connection that stays open."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._api = environment["SHOAL_API"]
        self._fingerprint = environment.get("SHOAL_API_FINGERPRINT", "")
        self._token_file = environment["SHOAL_TOKEN_FILE"]
        self._writer = {
            "role": environment["SHOAL_ROLE"],
            "index": int(environment["SHOAL_INDEX"]),
            "incarnation": int(environment.get("SHOAL_INCARNATION", "0")),
            "name": os.urandom(8).hex(),
        }
        self._connection: http.client.HTTPConnection | None = None

    def send(self, batch: list[list[Any]]) -> str | None:
        body = json.dumps({**self._writer, "points": batch})
        try:
            with open(self._token_file, encoding="ascii") as file:  # noqa: PTH123 - as light as can be
                token = file.read().strip()
            if self._connection is None:
                self._connection = open_connection(self._api, _REQUEST_SECONDS, self._fingerprint)
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            self._connection.request("POST", "/api/v1/metrics", body=body, headers=headers)
            response = self._connection.getresponse()
            answer = response.read()
        except BaseException:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            raise
        if response.status < 300:
            return None
        if response.status >= 500 or response.status == 429:
            raise OSError(f"the server answered {response.status}")
        try:
            return str(json.loads(answer)["message"])
        except (ValueError, KeyError, TypeError):
            return f"the server answered {response.status} {response.reason}"


class _File:
    """JSON lines, for a program that runs without the platform."""

    def __init__(self, path: str) -> None:
        self._path = path

    def send(self, batch: list[list[Any]]) -> str | None:
        lines = [
            json.dumps({"name": name, "value": value, "step": step, "at": at}) + "\n"
            for _, name, value, step, at in batch
        ]
        try:
            descriptor = os.open(
                self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o666
            )
        except OSError as error:
            return f"{self._path} cannot be written: {error.strerror}"
        try:
            os.write(descriptor, "".join(lines).encode())
        finally:
            os.close(descriptor)
        return None


def _json_number(value: float) -> float | str:
    """JSON has no NaN and no infinity: they are sent as words."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _current() -> _Reporter:
    """The reporter of this process; a new one after a fork."""
    global _reporter
    reporter = _reporter
    if reporter is not None and reporter.pid == os.getpid():
        return reporter
    with _making:
        if _reporter is None or _reporter.pid != os.getpid():
            _reporter = _Reporter(_sink(os.environ))
            atexit.register(_reporter.close)
            if "multiprocessing.util" in sys.modules:  # its children end without `atexit`
                from multiprocessing import util

                util.Finalize(None, _reporter.close, exitpriority=0)
        return _reporter


def _sink(environment: Mapping[str, str]) -> _Sink | None:
    if all(environment.get(name) for name in _NEEDED):
        return _Platform(environment)
    path = environment.get("SHOAL_REPORT_FILE")
    return _File(path) if path else None


def _after_fork() -> None:
    global _making, _reporter
    _making, _reporter = threading.Lock(), None


_reporter: _Reporter | None = None
_making = threading.Lock()
os.register_at_fork(after_in_child=_after_fork)


class _CallableModule(types.ModuleType):
    """Callable, since `from shoal import report` gives the module once it has been imported."""

    def __call__(self, *arguments: Any, **named: Any) -> None:
        report(*arguments, **named)


sys.modules[__name__].__class__ = _CallableModule
