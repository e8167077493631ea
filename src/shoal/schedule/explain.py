"""A decision's code and numbers in words: one sentence, and what would change it.

The sentence that a job's status shows, the one that `shoal explain` prints, and the one in history all
come from here, so there is one reason and it is the true one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shoal.objects.quantities import Bytes, CpuMillis

__all__ = ["CODES", "Explanation", "explain"]


@dataclass(frozen=True)
class Explanation:
    """`sentence` says what is so, `remedy` what would change it (empty where nothing need)."""

    sentence: str
    remedy: str = ""


def explain(code: str, evidence: Mapping[str, Any]) -> Explanation:
    """The words for a code; an unknown one (of a newer version) explains itself by its name."""
    words = _WORDS.get(code)
    if words is None:
        return Explanation(f"the scheduler says {code}" if code else "nothing holds the job back")
    return words(evidence)


def _queue_missing(e: Mapping[str, Any]) -> Explanation:
    queue = e.get("queue", "")
    return Explanation(
        f"there is no queue {queue}", f"create the queue {queue}, or give the job another one"
    )


def _namespace_not_allowed(e: Mapping[str, Any]) -> Explanation:
    return Explanation(
        f"the queue {e.get('queue', '')} does not take jobs of namespace {e.get('namespace', '')}",
        "add the namespace to the queue, or use another queue",
    )


def _priority_too_high(e: Mapping[str, Any]) -> Explanation:
    return Explanation(
        f"priority {e.get('priority')} is above {e.get('highest')}, the highest that this namespace may "
        f"use in queue {e.get('queue', '')}",
        "lower the job's priority, or raise the queue's highestPriority",
    )


def _quota_exceeded(e: Mapping[str, Any]) -> Explanation:
    resource, quota, used, asked = (e.get(name, 0) for name in ("resource", "quota", "used", "asked"))
    queue = e.get("queue", "")
    if asked > quota:
        return Explanation(
            f"the job needs {_amount(resource, asked)} and the whole quota of queue {queue} is "
            f"{_amount(resource, quota)}",
            "raise the quota, or ask for less",
        )
    return Explanation(
        f"queue {queue} uses {_amount(resource, used)} of its quota of {_amount(resource, quota)}, and "
        f"the job needs {_amount(resource, asked)} more",
        "it starts when jobs of the queue end, or the quota is raised",
    )


def _no_nodes(e: Mapping[str, Any]) -> Explanation:
    lost: list[str] = e.get("lost") or []
    if lost:
        return Explanation(
            f"every node of the cluster is declared lost ({', '.join(lost)})",
            f"if it is there after all: shoal lost --undo node/{lost[0]}",
        )
    return Explanation("the cluster has no nodes", "start some: shoal up")


def _no_matching_node(e: Mapping[str, Any]) -> Explanation:
    selector: dict[str, str] = e.get("selector") or {}
    taints: list[str] = e.get("taints") or []
    labels = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    wants = f"has the labels {labels}" if labels else "is without taints that it does not tolerate"
    if labels and taints:
        wants += f" and no taint that it does not tolerate ({', '.join(taints)})"
    elif taints:
        wants += f" ({', '.join(taints)})"
    nodes, role = _count(e.get("nodes", 0), "node"), e.get("role", "")
    return Explanation(
        f"none of the cluster's {nodes} suits role {role}: it needs one that {wants}",
        "label a node, remove a taint, or change the role's nodeSelector or tolerations",
    )


def _too_large(e: Mapping[str, Any]) -> Explanation:
    asked, resource, role = e.get("asked", 0), e.get("resource", ""), e.get("role", "")
    if asked > e.get("largest", 0):
        return Explanation(
            f"one task of role {role} asks for {_amount(resource, asked)} and the largest node that "
            f"suits it has {_amount(resource, e.get('largest', 0))}",
            "ask for less, or add a larger node",
        )
    return Explanation(
        f"{_count(e.get('tasks', 0), 'task')} of role {role} must start together and only "
        f"{e.get('fits', 0)} would fit on the empty cluster, for lack of {_title(resource)}",
        "ask for less, allow fewer tasks (minReplicas, gang.min), or add nodes",
    )


def _waiting_for_node(e: Mapping[str, Any]) -> Explanation:
    silent: list[str] = e.get("silent") or []
    cordoned: list[str] = e.get("cordoned") or []
    said = [
        *([f"{', '.join(silent)} to answer"] if silent else []),
        *([f"{', '.join(cordoned)} to take tasks again"] if cordoned else []),
    ]
    remedies = [
        *([f"if it is gone for good: shoal lost node/{silent[0]}"] if silent else []),
        *([f"shoal uncordon node/{cordoned[0]}"] if cordoned else []),
    ]
    return Explanation(f"it waits for {' and for '.join(said)}", "; ".join(remedies))


def _refused(e: Mapping[str, Any]) -> Explanation:
    why = e.get("message", "")
    sentence = f"node {e.get('node', '')} refused the job a moment ago and is left alone for a while"
    if e.get("reason") == "IsolationUnavailable":  # trying again will hardly help
        remedy = "shoal doctor shows what is missing; isolation: default does without it"
    else:
        remedy = "it is tried again by itself"
    return Explanation(f"{sentence}: {why}" if why else sentence, remedy)


def _insufficient(e: Mapping[str, Any]) -> Explanation:
    resource, tasks, fits = e.get("resource", "cpu"), e.get("tasks", 0), e.get("fits", 0)
    free = _amount(resource, e.get("free", 0))
    nodes = e.get("nodes", 0)
    where = "the 1 node that suits has" if nodes == 1 else f"the {nodes} nodes that suit have"
    need = (
        f"{_count(tasks, 'task')} of role {e.get('role', '')} at {_amount(resource, e.get('asked', 0))}"
    )
    largest = e.get("largest", 0)
    scattered = e.get("free", 0) >= tasks * e.get("asked", 0)
    most = f", at most {_amount(resource, largest)} on one" if scattered else ""
    can = "none fits" if not fits else f"only {fits} of them would fit"
    together = " together" if tasks > 1 else ""
    return Explanation(
        f"it needs {need}{together}, and {where} {free} free{most}: {can}",
        "it starts when running jobs end, or with fewer or smaller tasks",
    )


def _reserved(e: Mapping[str, Any]) -> Explanation:
    jobs: list[str] = e.get("jobs") or []
    whose = f" of {', '.join(jobs)}" if jobs else ""
    return Explanation(
        f"tasks{whose} end to make room for {_count(e.get('tasks', 0), 'task')} of it",
        "it starts when they have gone: at most their grace period",
    )


def _preempted(e: Mapping[str, Any]) -> Explanation:
    jobs: list[str] = e.get("for") or []
    whom = ", ".join(jobs) or "a job"
    tasks = e.get("tasks", 0)
    return Explanation(
        f"{_count(tasks, 'task')} beyond its minimum {'gives' if tasks == 1 else 'give'} up "
        f"{'its place' if tasks == 1 else 'their places'} for {whom}, of higher priority",
        "it grows again when there is room",
    )


def _step(sentence: str) -> Callable[[Mapping[str, Any]], Explanation]:
    def words(e: Mapping[str, Any]) -> Explanation:
        nodes: list[str] = e.get("nodes") or []
        return Explanation(sentence.replace("{nodes}", ", ".join(nodes) or "its node"))

    return words


def _amount(resource: str, value: int) -> str:
    if resource == "cpu":
        return f"{CpuMillis(value).text()} cpu"
    if resource == "memory":
        return f"{Bytes(value).text()} memory"
    return _count(value, "GPU" if resource == "gpu" else "job")


def _title(resource: str) -> str:
    return {"gpu": "GPUs"}.get(resource, resource)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


_WORDS: dict[str, Callable[[Mapping[str, Any]], Explanation]] = {
    "QueueMissing": _queue_missing,
    "NamespaceNotAllowed": _namespace_not_allowed,
    "PriorityTooHigh": _priority_too_high,
    "QuotaExceeded": _quota_exceeded,
    "NoNodes": _no_nodes,
    "NoMatchingNode": _no_matching_node,
    "TooLarge": _too_large,
    "WaitingForNode": _waiting_for_node,
    "PlacementRefused": _refused,
    "InsufficientGpu": _insufficient,
    "InsufficientMemory": _insufficient,
    "InsufficientCpu": _insufficient,
    "Reserved": _reserved,
    "Started": _step("the job was given its slots"),
    "Grown": _step("the job was given more slots"),
    "Shrunk": _step("the job asks for fewer tasks than before"),
    "Finished": _step("its tasks have ended"),
    "Suspended": _step("the job is suspended"),
    "Cancelled": _step("the job was cancelled"),
    "Deleted": _step("the job is being deleted"),
    "Preempted": _preempted,
    "NodeLost": _step("{nodes} is lost"),
    "NodeDrained": _step("{nodes} is being drained"),
    "Refused": _step("{nodes} refused the placement"),
}

CODES = tuple(_WORDS)
"""Every code that a plan may hold; the reasons to wait come first, in the order in which they are
looked for."""
