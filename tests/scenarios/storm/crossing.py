"""A small scenario that comes by nearly every durable act of server, agent and supervisor.

A gang over two nodes that fails once and then succeeds, an array with an index that never does, a
deaf task that is cancelled, a job that must wait for room, one that goes by itself when it is done, and
a task that has been running since before. What becomes of them is the same whoever is killed meanwhile;
a killed supervisor alone may cost one failure of the infrastructure.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.objects.errors import NotFound
from shoal.objects.job import Job, RoleStatus
from shoal.objects.ranges import IndexMap
from tests.scenarios.storm.people import People
from tests.scenarios.storm.tasks import COMMAND, claims, ran_twice, step

__all__ = ["Crossing"]

_JOBS = ("before", "gang", "array", "deaf", "waits", "brief")


class Crossing:
    """One run of the scenario. `folder` is the tasks' working directory, which they can write."""

    def __init__(self, people: People, output: Path, folder: Path) -> None:
        self._people = people
        self._output = output
        self._folder = folder

    def begin(self) -> None:
        """A task runs."""
        self._create("before", _role({"STEP": step(600)}))
        self._people.phase("before", "Running")

    def go_on(self) -> None:
        """All the rest, to the end of every job."""
        people = self._people
        self._create("brief", _role({"STEP": step(0.05)}), ttlAfterFinished="0s")
        fails = {f"STEP_1_{number}": step(0.1, 31 + number) for number in range(1, 5)}
        self._create(
            "array",
            _role({"STEP": step(0.2), **fails}),
            array={"indices": "0-2"},
            restart={"limit": 1, "backoff": "100ms"},
        )
        self._create("deaf", _role({"STEP": step(600, manners="deaf")}), gracePeriod="300ms")
        gang = {"STEP": step(0.2), "STEP_0_1": step(0.1, 31), "STEP_1_1": step(600)}
        self._create(
            "gang",
            _role(gang, replicas=2, resources={"cpu": "1100m"}, nodeSelector={}),
            restart={"limit": 2, "backoff": "100ms", "scope": "Gang"},
        )
        people.phase("deaf", "Running")
        self._create("waits", _role({"STEP": step(0.05)}, resources={"cpu": "1900m"}))
        people.until(self._has_waited, "waits has a reason to wait")
        people.edit("deaf", cancelled=True)
        for name in ("gang", "array", "deaf", "waits"):
            people.finished(name)
        people.edit("before", cancelled=True)
        people.finished("before")
        people.until(self._brief_is_gone, "brief is deleted")

    def problems(self, lost: int) -> list[str]:
        """What did not come out as it should; `lost` supervisors at most were killed."""
        found: list[str] = []
        losses = 0
        for name, (phase, reason, outcomes, codes) in _EXPECTED.items():
            job = self._people.look(name)
            status, role = job.status, job.status.roles[0]
            losses += status.infrastructure_failures
            said = (status.phase, status.reason, role.outcomes)
            if said != (phase, reason, outcomes):
                found.append(f"{name}: {said} instead of {(phase, reason, outcomes)}: {status}")
            if status.exit_code not in codes:
                found.append(f"{name}: exit code {status.exit_code} instead of one of {codes}")
            found += self._counters(name, job)
            found += self._claims(name, job, role)
        if losses > lost:
            found.append(f"{losses} failures of the infrastructure, with {lost} supervisors killed")
        return found

    def _counters(self, name: str, job: Job) -> list[str]:
        status = job.status
        lost = status.infrastructure_failures
        incarnations = IndexMap.parse(status.roles[0].incarnations)
        if name == "array":
            right = status.failures == 2 and sum(int(v) - 1 for v in incarnations.values()) == 1 + lost
        elif name == "gang":
            starts = {int(incarnations.get(index, "1")) for index in (0, 1)}
            right = status.attempt == 1 + status.failures + lost and starts == {status.attempt}
            right = right and status.failures + lost >= 1 and status.failures <= 1
            right = right and (lost > 0 or status.failures == 1)
        else:
            right = status.failures == 0 and status.attempt == 1
        return [] if right else [f"{name}: counters are wrong: {status}"]

    def _claims(self, name: str, job: Job, role: RoleStatus) -> list[str]:
        output = self._output / "default" / job.metadata.uid
        ran = claims(output)
        found = [f"{name}: {line}" for line in ran_twice(output)]
        incarnations = IndexMap.parse(role.incarnations)
        for _, index, incarnation in ran:
            if incarnation > int(incarnations.get(index, "1")):
                found.append(f"{name}: incarnation {incarnation} of {index} ran, and is not known")
        decided = {("worker", i, int(incarnations.get(i, "1"))) for i in IndexMap.parse(role.outcomes)}
        return found + [f"{name}: {each} has an outcome and never ran" for each in decided - ran]

    def _create(self, name: str, role: dict[str, Any], **spec: Any) -> None:
        role = {"workingDirectory": str(self._folder), **role}
        self._people.create(name, {"roles": [role], "gracePeriod": "5s", **spec})

    def _has_waited(self) -> bool:
        status = self._people.look("waits").status
        return bool(status.scheduling.code) or bool(status.attempt)

    def _brief_is_gone(self) -> bool:
        try:
            self._people.look("brief")
        except NotFound:
            return True
        return False


def _role(env: dict[str, str], **fields: Any) -> dict[str, Any]:
    made = {
        "command": COMMAND, "env": env, "resources": {"cpu": "100m"}, "nodeSelector": {"at": "one"},
    }  # fmt: skip
    return made | fields


_EXPECTED: dict[str, tuple[str, str, str, tuple[int | None, ...]]] = {
    "gang": ("Succeeded", "Completed", "0-1=Succeeded", (0,)),
    "array": ("Failed", "IndicesFailed", "0=Succeeded,1=Failed,2=Succeeded", (33, 34)),
    "deaf": ("Cancelled", "Cancelled", "", (None,)),
    "waits": ("Succeeded", "Completed", "0=Succeeded", (0,)),
    "before": ("Cancelled", "Cancelled", "", (None,)),
}
"""Phase, reason, outcomes, exit codes."""
