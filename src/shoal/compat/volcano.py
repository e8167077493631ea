"""The Job of Volcano (`batch.volcano.sh/v1alpha1`).

A task of Volcano, which has replicas, becomes a role. Policies become restart rules and the rule of
success where they mean the same; any other is refused by name. The plugins tensorflow, pytorch and mpi
become the runtime; what env and svc give (`VC_*` variables, files of host names) is refused where a
program asks for it: here it is in `SHOAL_INDEX` and `SHOAL_TASKS`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shoal.compat.documents import Converted, Reader, items_of, job_document, mapping, texts
from shoal.compat.pods import primary, role_of

__all__ = ["VERSION", "convert"]

VERSION = "batch.volcano.sh/v1alpha1"
_MAX_RETRY = 3
"""Volcano's default."""
_RUNTIMES = {"tensorflow": "tensorflow", "pytorch": "torchrun", "mpi": "mpi"}
_NAMED_BY_VOLCANO = re.compile(r"VC_\w+|VK_TASK_INDEX|/etc/volcano/")
_RESTARTS = ("RestartJob", "RestartTask", "RestartPod", "RestartPartition")
_ENDS = ("AbortJob", "TerminateJob")


def convert(document: Mapping[str, Any]) -> Converted:
    """The Job of Shoal for Volcano's.

    Raises:
        Invalid: it holds what has no counterpart.
    """
    return _Volcano(Reader(document)).converted()


class _Volcano:
    """One conversion; problems and notes go to the reader."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._spec: dict[str, Any] = {}
        self._rules: dict[int, str] = {}
        """The action by exit code."""

    def converted(self) -> Converted:
        """The document of the Job."""
        reader, spec = self._reader, self._spec
        tasks = reader.items("spec", "tasks")
        roles = [self._role(task, at) for at, task in enumerate(tasks)]
        if not roles:
            reader.wrong("spec.tasks", "a job has at least one task")
        plugins = mapping(reader.get("spec", "plugins"))
        runtime = next((_RUNTIMES[each] for each in plugins if each in _RUNTIMES), "plain")
        policies = {str(each.get("restartPolicy")) for each in map(self._pod, tasks)}
        never = policies <= {"Never"} and not self._restarts_on_failure()
        restart: dict[str, Any] = {"policy": "Never"}
        if not never:
            limit = reader.count("spec", "maxRetry", default=_MAX_RETRY)
            restart = {"policy": "OnFailure", "limit": limit}
        spec |= {"runtime": runtime, "roles": roles, "restart": restart}
        self._policies(reader.items("spec", "policies"), "spec.policies", "")
        for at, task in enumerate(tasks):
            listed = items_of(task.get("policies"))
            self._policies(listed, f"spec.tasks[{at}].policies", str(task.get("name", "")))
        if self._rules:
            restart["rules"] = [
                {"exitCodes": [code], "action": action} for code, action in sorted(self._rules.items())
            ]
        self._sizes(roles)
        if reader.text("spec", "queue"):
            spec["queue"] = reader.text("spec", "queue")
        if reader.get("spec", "ttlSecondsAfterFinished") is not None:
            spec["ttlAfterFinished"] = f"{reader.count('spec', 'ttlSecondsAfterFinished')}s"
        for field in ("minSuccess", "networkTopology", "volumes"):
            if reader.get("spec", field) is not None:
                reader.wrong(f"spec.{field}", "is not supported")
        if reader.text("spec", "priorityClassName"):
            reader.note(f"the priority class {reader.text('spec', 'priorityClassName')} is left out")
        return job_document(reader, spec)

    def _pod(self, task: Mapping[str, Any]) -> dict[str, Any]:
        return mapping(mapping(task.get("template")).get("spec"))

    def _role(self, task: Mapping[str, Any], at: int) -> dict[str, Any]:
        reader, path, pod = self._reader, f"spec.tasks[{at}]", self._pod(task)
        container = primary(reader, path, pod, "")
        replicas = 1 if task.get("replicas") is None else task["replicas"]
        if isinstance(replicas, bool) or not isinstance(replicas, int) or replicas < 1:
            reader.wrong(f"{path}.replicas", f"wants a whole number from 1; found {replicas!r}")
            replicas = 1
        role: dict[str, Any] = {
            "name": str(task.get("name") or f"task-{at}"),
            "replicas": replicas,
            **role_of(reader, path, pod, container),
        }
        asked = {
            found
            for word in (*role.get("command", ()), *role.get("args", ()))
            for found in _NAMED_BY_VOLCANO.findall(word)
        }
        if asked:
            reader.wrong(
                f"{path}.command",
                f"reads {', '.join(sorted(asked))} of Volcano's plugins, which Shoal does not give: use "
                "SHOAL_INDEX and SHOAL_TASKS, or the plugin tensorflow, pytorch or mpi",
            )
        least = task.get("minAvailable")
        if isinstance(least, int) and 0 < least < role["replicas"]:
            role["minReplicas"] = least
        if task.get("dependsOn"):
            reader.wrong(f"{path}.dependsOn", "tasks that wait for one another are not supported")
        return role

    def _restarts_on_failure(self) -> bool:
        return any(
            "PodFailed" in _events(each) and each.get("action") in _RESTARTS
            for each in self._reader.items("spec", "policies")
        )

    def _policies(self, policies: list[dict[str, Any]], path: str, task: str) -> None:
        for at, policy in enumerate(policies):
            where, action = f"{path}[{at}]", str(policy.get("action", ""))
            code = policy.get("exitCode")
            if code is not None:
                self._exit_code(code, action, where)
                continue
            for event in _events(policy):
                self._event(event, action, where, task)

    def _exit_code(self, code: Any, action: str, where: str) -> None:
        if isinstance(code, int) and 0 < code < 256 and action in (*_RESTARTS, *_ENDS):
            self._rules.setdefault(code, "Restart" if action in _RESTARTS else "Fail")
        else:
            self._reader.wrong(where, f"{action or 'no action'} on exit code {code} has no counterpart")

    def _event(self, event: str, action: str, where: str, task: str) -> None:
        """What Shoal does anyway is not written; the rest is success, a restart or the end."""
        if event == "TaskCompleted" and action == "CompleteJob" and task:
            self._spec["success"] = {"role": task}
        elif event == "TaskCompleted" and action == "CompleteJob":
            self._spec["success"] = {"policy": "Any"}
        elif event == "PodEvicted" and action in _RESTARTS:
            return  # a job that is preempted or loses a node goes on
        elif event == "PodFailed" and action == "RestartJob":
            self._spec["restart"]["scope"] = "Gang"
        elif event == "PodFailed" and action in _RESTARTS:
            self._spec["restart"]["scope"] = "Task"
        elif event in ("PodFailed", "TaskFailed") and action in _ENDS:
            self._spec["restart"] = {"policy": "Never"}
        else:
            self._reader.wrong(where, f"{action or 'no action'} on {event} has no counterpart")

    def _sizes(self, roles: list[dict[str, Any]]) -> None:
        """How many the job starts with: each task's own minimum, or the job's if it has one task."""
        reader = self._reader
        if not all(isinstance(role["replicas"], int) for role in roles):
            return
        total = sum(role["replicas"] for role in roles)
        least = reader.count("spec", "minAvailable", default=total)
        if least > total:
            reader.wrong("spec.minAvailable", f"is {least}, and the tasks have {total} replicas in all")
        elif 0 < least < total and len(roles) == 1:
            roles[0].setdefault("minReplicas", least)
        elif least < total and not any("minReplicas" in role for role in roles):
            reader.note(
                f"minAvailable {least} of {total} is not shared out among tasks: all start at once"
            )


def _events(policy: Mapping[str, Any]) -> list[str]:
    events = texts(policy.get("events"))
    return [*events, str(policy["event"])] if policy.get("event") else events
