"""An elastic job without the platform: a coordinator and workers, as real processes of this machine.

    with ElasticJob(tmp_path, minimum=2) as job:
        job.start("a", script)
        job.start("b", script)
        job.kill("a")
        job.wait("b")

Workers write their output to `NAME.log` in the folder, and what a script prints as a JSON object on a
line of its own is read back by `lines`. Everything is ended with the block.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["ElasticJob"]

_START_SECONDS = 30.0


class ElasticJob:
    """See the module. Not thread-safe."""

    def __init__(
        self,
        folder: Path,
        minimum: int = 1,
        *,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`options` are more of the coordinator's; `environment` is added to everybody's."""
        self.folder = folder
        self.minimum = minimum
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.coordinator: subprocess.Popen[bytes] | None = None
        self._options = list(options)
        self._environment = dict(environment or {})
        self._read: dict[str, int] = {}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.start_coordinator()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in [*self.workers.values(), self.coordinator]:
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait(10.0)
        if kind is not None:
            for path in sorted(self.folder.glob("*.log")):
                print(f"--- {path.name}\n{path.read_text()[-3000:]}")  # noqa: T201 - for a failed test

    def start_coordinator(self, environment: Mapping[str, str] | None = None) -> None:
        """Start it, or start it again with what it had written down."""
        file = self.folder / "coordinator.json"
        file.unlink(missing_ok=True)
        command = [
            sys.executable, "-m", "shoal.elastic.coordinator", "--minimum", str(self.minimum),
            "--sqlite", str(self.folder / "record.db"), "--address-file", str(file), *self._options,
        ]  # fmt: skip
        self.coordinator = self._spawn("coordinator", command, environment or {})
        self.until(file.exists, "the coordinator listens", _START_SECONDS)

    def start(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a worker: a Python script with its arguments."""
        variables = {"SHOAL_ELASTIC": str(self.folder), "SHOAL_ELASTIC_NAME": name}
        worker = self._spawn(name, [sys.executable, *command], variables | dict(environment or {}))
        self.workers[name] = worker
        return worker

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> float:
        """Signal a worker, or the `coordinator`: when (monotonic seconds)."""
        process = self.coordinator if name == "coordinator" else self.workers[name]
        assert process is not None
        process.send_signal(number)
        now = time.monotonic()
        if number == signal.SIGKILL:
            process.wait(10.0)
        return now

    def wait(self, name: str, timeout_seconds: float = 60.0) -> int:
        """The exit code of a worker that ends by itself.

        Raises:
            subprocess.TimeoutExpired: it does not.
        """
        return self.workers[name].wait(timeout_seconds)

    def lines(self, name: str) -> list[dict[str, Any]]:
        """What a worker has reported so far: its lines that are JSON objects."""
        path = self.folder / f"{name}.log"
        return _objects(path.read_text()) if path.exists() else []

    def news(self, name: str) -> list[dict[str, Any]]:
        """Of `lines`, those that were not there at the last call: for jobs with much output."""
        path = self.folder / f"{name}.log"
        if not path.exists():
            return []
        with path.open("rb") as log:
            log.seek(self._read.get(name, 0))
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read[name] = self._read.get(name, 0) + len(whole)
        return _objects(whole.decode(errors="replace"))

    def sidecar(self, name: str) -> int:
        """The process id of a worker's sidecar; 0 while there is none. Linux."""
        tasks = Path(f"/proc/{self.workers[name].pid}/task")
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in " ".join((task / "children").read_text() for task in tasks.iterdir()).split():
                if b"sidecar.py" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
        return 0

    def kill_sidecar(self, name: str) -> bool:
        """SIGKILL to a worker's sidecar; False when it has none now. Linux."""
        pid = self.sidecar(name)
        try:
            process = os.pidfd_open(pid) if pid else -1
        except ProcessLookupError:
            return False
        if process < 0:
            return False
        try:
            if self.sidecar(name) != pid:
                return False
            signal.pidfd_send_signal(process, signal.SIGKILL)
        except ProcessLookupError:
            return False
        finally:
            os.close(process)
        return True

    def until(self, condition: Callable[[], object], what: str, timeout_seconds: float = 60.0) -> None:
        """Return once the condition holds.

        Raises:
            TimeoutError: it did not in that time.
        """
        deadline = time.monotonic() + timeout_seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} did not come true within {timeout_seconds:g} s")
            time.sleep(0.005)

    def _spawn(
        self, name: str, command: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1", **self._environment, **environment},
            )  # fmt: skip


def _objects(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in text.splitlines():
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found
