"""The home of the field tests in virtual time: for decisions of the control plane, which are the same
whatever the tasks are. Documents pass admission as the server has them pass it. A task's script is
`sleep SECONDS`, `exit CODE`, both, or `exit CODE once` (the next incarnation succeeds); `A / B` is A at
index 0 and B at index 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from shoal.admission.admission import Admission
from shoal.cluster.simulated import Script
from shoal.objects import codec
from shoal.objects.job import FINISHED, Job
from shoal.objects.kinds import JOB, NODE, QUEUE, Kind
from shoal.objects.node import Capacity, Node
from shoal.objects.queue import Queue
from shoal.objects.task import TaskSpec
from shoal.store.authorise import authorise
from shoal.store.base import Actor
from shoal.testing.plane import Plane

__all__ = ["Simulated", "role"]

PERSON = Actor("owner", ("admin",))


def role(script: str = "sleep 0", **fields: Any) -> dict[str, Any]:
    """A role of one small task that sleeps, as its document."""
    return {"command": script.split(), "resources": {"cpu": "100m"}, **fields}


class Simulated:
    """What `Standing` offers to tests of decisions, without processes. Nodes are
    declared by name, with their capacity and labels."""

    def __init__(self, declared: dict[str, tuple[Capacity, dict[str, str]]]) -> None:
        self.plane = Plane({name: size for name, (size, _) in declared.items()}, _behave)
        for name, (_, labels) in declared.items():
            self.plane.cluster.declare(name, labels=labels)
        self.written: list[tuple[Kind, Any]] = []
        """Every document that was sent."""
        store = self.plane.store

        def nodes() -> list[Node]:
            return [record.object for record in store.list(NODE, actor=PERSON).records]

        self._admission = Admission(store, nodes, authorise=authorise)
        self._numbers = itertools.count(1)
        self.plane.settle()

    def create(self, kind: Kind, document: dict[str, Any]) -> Any:
        """Admit and store a document.

        Raises:
            ShoalError: it is refused.
        """
        document = {"apiVersion": "shoal.dev/v1alpha1", "kind": kind.name, **document}
        self.written.append((kind, document))
        namespace = document["metadata"].get("namespace", "default") if kind.namespaced else ""
        body = msgspec.json.encode(document)
        put = self._admission.create_document(kind, body, namespace, PERSON, dry_run=False)
        self.plane.settle()
        return put.record.object

    def job(self, *roles: dict[str, Any], metadata: Mapping[str, Any] | None = None, **spec: Any) -> Job:
        """Create a job of these roles; its failures are final and its tasks go fast unless the test
        says otherwise."""
        defaults = {"gracePeriod": "2s", "restart": {"limit": 0}}
        named = {"name": f"job-{next(self._numbers)}", **(metadata or {})}
        return self.create(JOB, {"metadata": named, "spec": {**defaults, "roles": roles, **spec}})

    def queue(self, **spec: Any) -> Queue:
        """Create a queue."""
        metadata = {"name": f"queue-{next(self._numbers)}"}
        return self.create(QUEUE, {"metadata": metadata, "spec": spec})

    def edit(self, job: Job, **spec: Any) -> None:
        """Change fields of a job's spec, given as its document has them."""
        self.written.append((JOB, {"spec": spec}))
        document = codec.builtins(self.look(job))
        del document["metadata"]["resourceVersion"], document["status"]
        document["spec"] |= spec
        self._admission.put(JOB, msgspec.json.encode(document), job.key, PERSON)
        self.plane.settle()

    def cancel(self, job: Job) -> None:
        """End the job for good."""
        self.edit(job, cancelled=True)

    def look(self, job: Job) -> Job:
        """The job as it is now."""
        return self.plane.job(job.metadata.name, job.metadata.namespace)

    def until(self, job: Job, condition: Callable[[Job], bool], what: str = "") -> Job:
        """Wait until the condition holds of the job; the job as it is then."""
        try:
            self.plane.until(lambda: condition(self.look(job)), 120.0)
        except TimeoutError as error:
            status = codec.builtins(self.look(job).status)
            raise TimeoutError(f"{what or condition} did not come true: {status}") from error
        return self.look(job)

    def running(self, job: Job) -> Job:
        """Wait until all that is given out of the job runs."""
        return self.until(job, lambda j: j.status.phase == "Running", "Running")

    def finished(self, job: Job) -> Job:
        """Wait until the job has ended."""
        return self.until(job, lambda j: j.status.phase in FINISHED, "finished")

    def waiting(self, job: Job) -> str:
        """Wait until the scheduler says why the job waits; its code."""
        found = self.until(job, lambda j: bool(j.status.scheduling.code), "a reason to wait")
        assert found.status.phase == "Pending", found.status
        return found.status.scheduling.code

    def until_queue(self, name: str, condition: Callable[[Queue], bool]) -> Queue:
        """Wait until the condition holds of the queue; the queue as it is then."""
        store = self.plane.store
        self.plane.until(lambda: condition(store.get(Queue, "", name, actor=PERSON)), 120.0)
        return store.get(Queue, "", name, actor=PERSON)

    def starts(self, job: Job) -> int:
        """How many tasks of the job have run to their end."""
        return sum(task.spec.job == job.metadata.name for task in self.plane.attempts)

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass."""
        self.plane.advance(seconds)

    def places(self, job: Job) -> dict[tuple[str, int], str]:
        """The nodes of the job's tasks, by role and index."""
        tasks = self.plane.tasks(job.metadata.name)
        return {key: task.spec.placement.node for key, task in tasks.items()}


def _behave(spec: TaskSpec) -> Script:
    words = " ".join(spec.command).split(" / ")[spec.index if "/" in spec.command else 0].split()
    seconds, code = 0.0, 0
    if words[0] == "sleep":
        seconds, words = float(words[1]), words[2:]
    if words and words[0] == "exit":
        again = words[2:] == ["once"] and spec.incarnation > 1
        code, words = 0 if again else int(words[1]), []
    assert not words, f"not a script of a simulated task: {spec.command}"
    return Script(run_seconds=seconds, exit_code=code)
