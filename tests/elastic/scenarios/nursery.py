"""Real processes that are there in a few milliseconds: forked from one that has imported torch."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Child", "Nursery"]

_MAIN = Path(__file__).parent / "nursery_main.py"
_SECONDS = 60.0


class Child:
    """One process, as `subprocess.Popen` would show it."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.pid = pid
        self._nursery = nursery
        self._handle = os.pidfd_open(pid)

    @property
    def returncode(self) -> int | None:
        return self._nursery.ended.get(self.pid)

    def poll(self) -> int | None:
        self._nursery.pump(0.0)
        return self.returncode

    def wait(self, timeout: float = _SECONDS) -> int:
        """
        Raises:
            subprocess.TimeoutExpired: it does not end in that time.
        """
        deadline = time.monotonic() + timeout
        while self.returncode is None:
            left = deadline - time.monotonic()
            if left <= 0.0:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            self._nursery.pump(left)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """See the module. One at a time asks."""

    def __init__(self) -> None:
        self.ended: dict[int, int] = {}
        self._buffer = b""
        self._answers: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_MAIN)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self._answer("ready")

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], log: Path,
        network: str | None = None,
    ) -> Child:  # fmt: skip
        """A Python program with its arguments; `network`: the file of its network namespace."""
        request = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "log": str(log),
            "network": network,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return Child(self, self._answer("started"))

    def pump(self, timeout_seconds: float) -> None:
        """Read what has been answered, for at most so long."""
        assert self._process.stdout is not None
        handle = self._process.stdout.fileno()
        if not select.select([handle], [], [], timeout_seconds)[0]:
            return
        chunk = os.read(handle, 1 << 16)
        if not chunk:
            raise RuntimeError(f"the nursery has ended with {self._process.wait(10.0)}")
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in lines:
            told = json.loads(line)
            if "ended" in told:
                self.ended[told["ended"]] = told["status"]
            else:
                self._answers.append(told)

    def close(self) -> None:
        """End it, and every child that is left."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_SECONDS)
        self._process.stdout.close()

    def _answer(self, kind: str) -> int:
        deadline = time.monotonic() + _SECONDS
        while not self._answers:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the nursery did not answer {kind!r}")
            self.pump(1.0)
        told = self._answers.pop(0)
        return int(told[kind])
