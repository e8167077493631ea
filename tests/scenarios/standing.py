"""A home that stays up for many tests: real server, agents and tasks, and what tests do with them.

Documents go to the server as they are written, past the client's own checks, so that what is refused
is refused by the server. Every document is kept: a test that claims to show a field's effect must have
written that field (`fields.unwritten`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec

from shoal.client import Client
from shoal.client.store import object_path
from shoal.client.wire import API
from shoal.cluster.local.nodes import NodeDecl
from shoal.objects import codec
from shoal.objects.errors import NotFound
from shoal.objects.job import FINISHED, Job
from shoal.objects.kinds import JOB, NODE, QUEUE, Kind, kind_of
from shoal.objects.node import Node
from shoal.objects.queue import Queue
from shoal.objects.task import TaskKey
from shoal.testing.local import LocalHome, wait_until

__all__ = ["Bystander", "Ran", "Standing", "begin_cli", "python", "role", "run_cli"]

PATIENCE_SECONDS = 45.0
"""For what takes a second at most, on a machine that may be busy."""

_numbers = itertools.count(1)


def role(script: str = "", **fields: Any) -> dict[str, Any]:
    """A role of one small task that runs a shell script, as its document."""
    made: dict[str, Any] = {"resources": {"cpu": "100m"}}
    if script:
        made["command"] = ["sh", "-c", script]
    return made | fields


def python(source: str, *arguments: str) -> list[str]:
    """A command that runs this Python, alone and fast."""
    return [sys.executable, "-I", "-S", "-c", source, *arguments]


class Standing:
    """See the module. Not shared between threads."""

    def __init__(
        self,
        path: Path,
        nodes: Sequence[NodeDecl],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.local = LocalHome(path, nodes, server=True, environment=environment)
        self.home = self.local.home
        self.written: list[tuple[Kind, Any]] = []
        """Every document that was sent since `begin`."""
        self._made: list[tuple[Kind, str, str]] = []

    def __enter__(self) -> Self:
        self.local.__enter__()
        try:
            self.client = Client.connect(self.home.path)
            wait_until(self._all_ready, PATIENCE_SECONDS, "every node is Ready in the store")
        except BaseException:
            self.local.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.local.close()

    def begin(self) -> None:
        """A test begins: nothing has been written yet."""
        self.written.clear()

    def clear(self) -> None:
        """A test ends: delete what it made, the newest first (a queue after those below it), and wait
        until all of that is gone."""
        made, self._made = self._made[::-1], []
        for kind, namespace, name in made:
            with contextlib.suppress(NotFound):
                self.client.edit(kind.struct, namespace, name, _released)
                self.client.delete(kind, namespace, name)
        for kind, namespace, name in made:
            self.until_gone(kind, namespace, name)

    def keep(self, obj: Any) -> None:
        """Let what was created stay until the home goes."""
        self._made.remove((kind_of(obj), *obj.key))

    def adopt(self, kind: Kind, name: str, namespace: str = "default") -> Any:
        """The object that something else has created; it goes with the test too."""
        self._made.append((kind, namespace if kind.namespaced else "", name))
        return self.client.get(kind.struct, namespace if kind.namespaced else "", name)

    # Writing

    def create(self, kind: Kind, document: dict[str, Any]) -> Any:
        """Send a document to be created, as it is; the object as the server answers it.

        Raises:
            ShoalError: what the server says.
        """
        document = {"apiVersion": "shoal.dev/v1alpha1", "kind": kind.name, **document}
        self.written.append((kind, document))
        namespace = document["metadata"].get("namespace", "default") if kind.namespaced else ""
        path = f"{API}/namespaces/{namespace}/{kind.plural}" if namespace else f"{API}/{kind.plural}"
        answer = self.client.transport.request("POST", path, body=msgspec.json.encode(document))
        made = codec.decode(answer.body, kind.struct)
        self._made.append((kind, *made.key))
        return made

    def job(self, *roles: dict[str, Any], metadata: Mapping[str, Any] | None = None, **spec: Any) -> Job:
        """Create a job of these roles; its failures are final and its tasks go fast unless the test
        says otherwise."""
        defaults = {"gracePeriod": "2s", "restart": {"limit": 0}}
        name = {"name": f"job-{next(_numbers)}"}
        document = {
            "metadata": {**name, **(metadata or {})},
            "spec": {**defaults, "roles": roles, **spec},
        }
        return self.create(JOB, document)

    def queue(self, **spec: Any) -> Queue:
        """Create a queue."""
        return self.create(QUEUE, {"metadata": {"name": f"queue-{next(_numbers)}"}, "spec": spec})

    def edit(self, job: Job, **spec: Any) -> Job:
        """Change fields of a job's spec, given as its document has them."""
        return self._edit(JOB, job.metadata.namespace, job.metadata.name, spec)

    @contextlib.contextmanager
    def node(self, name: str, **spec: Any) -> Iterator[Node]:
        """Change fields of a node's spec; taken back at the end of the block."""
        before = codec.builtins(self.client.get(Node, "", name)).get("spec", {})
        try:
            yield self._edit(NODE, "", name, spec)
        finally:
            self._replace(NODE, "", name, before)

    # Looking

    def look(self, job: Job) -> Job:
        """The job as it is now."""
        return self.client.get(Job, job.metadata.namespace, job.metadata.name)

    def until(self, job: Job, condition: Callable[[Job], bool], what: str = "") -> Job:
        """Wait until the condition holds of the job; the job as it is then."""

        def holds(there: Job | None) -> bool:
            assert there is not None, f"{job.metadata.name} was deleted meanwhile"
            return condition(there)

        try:
            found = self.client.wait(
                Job, job.metadata.namespace, job.metadata.name, holds, PATIENCE_SECONDS
            )
        except TimeoutError as error:
            status = codec.builtins(self.look(job).status)
            raise TimeoutError(f"{what or condition} did not come true: {status}") from error
        assert found is not None
        return found

    def running(self, job: Job) -> Job:
        """Wait until all that is given out of the job runs."""
        return self.until(job, lambda j: j.status.phase == "Running", "Running")

    def finished(self, job: Job) -> Job:
        """Wait until the job has ended, however."""
        return self.until(job, lambda j: j.status.phase in FINISHED, "finished")

    def waiting(self, job: Job) -> str:
        """Wait until the scheduler says why the job waits; its code."""
        found = self.until(job, lambda j: bool(j.status.scheduling.code), "a reason to wait")
        assert found.status.phase == "Pending", found.status
        return found.status.scheduling.code

    def until_gone(self, kind: Kind, namespace: str, name: str) -> None:
        """Wait until the object is there no more."""

        def gone(there: Any) -> bool:
            return there is None

        self.client.wait(kind.struct, namespace, name, gone, PATIENCE_SECONDS)

    def until_queue(self, name: str, condition: Callable[[Queue], bool]) -> Queue:
        """Wait until the condition holds of the queue; the queue as it is then."""
        found = self.client.wait(
            Queue, "", name, lambda queue: queue is not None and condition(queue), PATIENCE_SECONDS
        )
        assert found is not None
        return found

    def output(self, job: Job) -> Path:
        """The folder that the job's tasks share."""
        return self.home.output / job.metadata.namespace / job.metadata.uid

    def notes(self, job: Job, name: str = "notes") -> list[str]:
        """The lines that the job's tasks have appended to `$SHOAL_OUTPUT/notes`."""
        try:
            return (self.output(job) / name).read_text().splitlines()
        except FileNotFoundError:
            return []

    def until_noted(self, job: Job, line: str, count: int = 1) -> list[str]:
        """Wait until the job's tasks have noted that line so often; all lines then."""
        try:
            wait_until(lambda: self.notes(job).count(line) >= count, PATIENCE_SECONDS)
        except TimeoutError as error:
            status = codec.builtins(self.look(job).status)
            raise TimeoutError(f"{line!r} is not noted: {self.notes(job)}; {status}") from error
        return self.notes(job)

    def log(self, job: Job, role: str = "", index: int | None = None, **query: Any) -> bytes:
        """What the newest incarnations have written."""
        metadata = job.metadata
        records = self.client.logs(metadata.namespace, metadata.name, role=role, index=index, **query)
        return b"".join(record.data for record in records)

    def tasks(self, job: Job) -> tuple[Any, ...]:
        """The job's tasks on their nodes."""
        return self.client.tasks(job.metadata.namespace, job.metadata.name)

    def processes(self, job: Job, role: str = "worker", index: int = 0) -> Any:
        """Supervisor and command of a task that runs."""
        report = next(t for t in self.tasks(job) if (t.role, t.index) == (role, index))
        task = self.local.task(TaskKey(namespace=report.namespace, name=report.name))
        assert task is not None, report
        return self.local.started(task)

    def isolation(self, name: str) -> str:
        """`enforced`, or why this machine does not grant that isolation."""
        return next(iter(self.local.cluster.nodes())).isolations[name]

    def cli(self, *words: str, **options: Any) -> Ran:
        """Run `shoal WORDS` against this home; see `run_cli`."""
        return run_cli(self.home.path, *words, **options)

    def _all_ready(self) -> bool:
        nodes = [record.object for record in self.client.list(NODE).records]
        ready = [
            n
            for n in nodes
            if any(c.type == "Ready" and c.status == "True" for c in n.status.conditions)
        ]
        return len(ready) == len(self.local.cluster.nodes())

    def _edit(self, kind: Kind, namespace: str, name: str, spec: dict[str, Any]) -> Any:
        self.written.append((kind, {"spec": spec}))
        before = codec.builtins(self.client.get(kind.struct, namespace, name)).get("spec", {})
        return self._replace(kind, namespace, name, {**before, **spec})

    def _replace(self, kind: Kind, namespace: str, name: str, spec: dict[str, Any]) -> Any:
        document = codec.builtins(self.client.get(kind.struct, namespace, name))
        del document["metadata"]["resourceVersion"]
        document = {key: value for key, value in document.items() if key != "status"} | {"spec": spec}
        path = object_path(kind, namespace, name)
        answer = self.client.transport.request("PUT", path, body=msgspec.json.encode(document))
        return codec.decode(answer.body, kind.struct)


class Bystander:
    """A job that only wants to be left alone, and a look whether it was."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        ticks = "while :; do echo >> $SHOAL_OUTPUT/ticks; sleep 0.1; done"
        document = {
            "metadata": {"name": "bystander"},
            "spec": {"roles": [role(ticks)], "restart": {"limit": 0, "infrastructureLimit": 0}},
        }
        self._job: Job = standing.create(JOB, document)
        standing.keep(self._job)
        standing.running(self._job)
        self._pid = standing.processes(self._job).command_pid

    def check(self) -> None:
        """It runs as before: the same process, and it gets on."""
        job = self._standing.look(self._job)
        assert (job.status.phase, job.status.attempt) == ("Running", 1)
        assert self._standing.processes(self._job).command_pid == self._pid
        ticks = self._standing.output(self._job) / "ticks"
        before = ticks.stat().st_size
        wait_until(
            lambda: ticks.stat().st_size > before, PATIENCE_SECONDS, "another tick of the bystander"
        )


@dataclass(frozen=True)
class Ran:
    """How a command line ended."""

    code: int
    out: bytes
    err: str
    peak_bytes: int

    def refused(self, code: int) -> str:
        """That it failed with this exit code and one sentence; the sentence and its hint."""
        assert self.code == code, (self.code, self.err)
        (sentence,) = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert len(sentence) < 400, sentence
        assert not sentence.endswith("."), "one sentence, without its full stop"
        return self.err


def begin_cli(
    home: Path, *words: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start `shoal WORDS` for this home, with pipes for all that goes in and out."""
    return subprocess.Popen(
        [sys.executable, "-m", "shoal.cli", *words],
        cwd=cwd or home.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "SHOAL_HOME": str(home), "NO_COLOR": "1", **(environment or {})},
    )


def run_cli(
    home: Path,
    *words: str,
    cwd: Path | None = None,
    stdin: bytes = b"",
    timeout_seconds: float = PATIENCE_SECONDS,
    environment: Mapping[str, str] | None = None,
) -> Ran:
    """Run `shoal WORDS` for this home, as a person would. Its standard error has no traceback."""
    with begin_cli(home, *words, cwd=cwd, environment=environment) as begun:
        watch = _PeakMemory(begun.pid)
        try:
            out, err = begun.communicate(stdin, timeout_seconds)
        except BaseException:
            begun.kill()
            raise
        finally:
            watch.stop()
    ran = Ran(begun.returncode, out, err.decode(errors="replace"), watch.peak_bytes)
    assert "Traceback" not in ran.err, ran.err
    return ran


class _PeakMemory:
    """The most memory that a process was seen to hold, looked at until `stop`."""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._path = Path(f"/proc/{pid}/status")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="peak memory", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.01):
            with contextlib.suppress(OSError, StopIteration):
                lines = self._path.read_text().splitlines()
                line = next(line for line in lines if line.startswith("VmHWM:"))
                self.peak_bytes = max(self.peak_bytes, int(line.split()[1]) << 10)


def _released(obj: Any) -> Any:
    """Without finalizers of the test's own, which nobody else would take away."""
    replace = msgspec.structs.replace
    kept = tuple(each for each in obj.metadata.finalizers if "shoal.dev" in each)
    return replace(obj, metadata=replace(obj.metadata, finalizers=kept))
