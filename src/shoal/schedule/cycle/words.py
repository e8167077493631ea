"""A step's code and numbers in words: one sentence, and what would change it.

Reasons to wait stand in the order of `reasons`; what a job is told in its status, on the command line
and in history comes from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shoal.objects.quantities import Bytes, CpuMillis
from shoal.schedule.explanation import Explanation

__all__ = ["CODES", "in_words", "say"]

_Evidence = Mapping[str, Any]


def say(code: str, evidence: _Evidence) -> Explanation:
    """Why a step is taken. What holds besides is told in one more clause."""
    said = in_words(code, evidence)
    also: list[_Evidence] = evidence.get("also", [])
    if not also:
        return said
    more = "; ".join(dict.fromkeys(in_words(str(each["code"]), each).sentence for each in also))
    return Explanation(f"{said.sentence} (besides: {more})", said.remedy)


def in_words(code: str, evidence: _Evidence) -> Explanation:
    """Of one code; one that another version wrote, with other numbers, explains itself by its name."""
    words = _WORDS.get(code)
    try:
        return words(evidence) if words is not None else Explanation(f"the scheduler says {code}")
    except KeyError:
        return Explanation(f"the scheduler says {code}")


def _fixed(sentence: str, remedy: str = "") -> Callable[[_Evidence], Explanation]:
    return lambda evidence: Explanation(sentence.format(**evidence), remedy)


def _namespace(e: _Evidence) -> Explanation:
    allowed = ", ".join(e["allowed"])
    return Explanation(
        f"queue {e['queue']} takes jobs of {allowed} alone, not of namespace {e['namespace']}",
        "add the namespace to the queue, or use another queue",
    )


def _priority(e: _Evidence) -> Explanation:
    return Explanation(
        f"priority {e['priority']} is above {e['highest']}, the highest that this namespace may use in "
        f"queue {e['queue']}",
        "lower the job's priority, or raise the queue's highestPriority",
    )


def _no_nodes(e: _Evidence) -> Explanation:
    lost: list[str] = e.get("lost") or []
    if lost:
        return Explanation(
            f"every node of the cluster is declared lost ({', '.join(lost)})",
            f"if it is there after all: shoal lost --undo node/{lost[0]}",
        )
    return Explanation("the cluster has no nodes", "start some: shoal up")


def _no_node_suits(e: _Evidence) -> Explanation:
    labels = ",".join(f"{key}={value}" for key, value in e["selector"].items())
    taints: list[str] = e["taints"]
    wants = f"has the labels {labels}" if labels else "is without taints that it does not tolerate"
    if labels and taints:
        wants += f" and no taint that it does not tolerate ({', '.join(taints)})"
    elif taints:
        wants += f" ({', '.join(taints)})"
    count = e["nodes"]
    nodes = f"{count} node{'' if count == 1 else 's'}"
    return Explanation(
        f"none of the cluster's {nodes} suits role {e['role']}: it needs one that {wants}",
        "label a node, remove a taint, or change the role's nodeSelector or tolerations",
    )


def _waiting_for_node(e: _Evidence) -> Explanation:
    silent: list[str] = e["silent"]
    cordoned: list[str] = e["cordoned"]
    said = [
        *([f"{', '.join(silent)} to answer"] if silent else []),
        *([f"{', '.join(cordoned)} to take tasks again"] if cordoned else []),
    ]
    remedies = [
        *([f"if it is gone for good: shoal lost node/{silent[0]}"] if silent else []),
        *([f"shoal uncordon node/{cordoned[0]}"] if cordoned else []),
    ]
    return Explanation(f"it waits for {' and for '.join(said)}", "; ".join(remedies))


def _tasks(counts: Mapping[str, int]) -> str:
    return " and ".join(f"{count} x {role}" for role, count in counts.items())


def _too_large(e: _Evidence) -> Explanation:
    return Explanation(
        f"it needs {_tasks(e['wanted'])} at once, and empty nodes that suit hold {_tasks(e['empty'])}",
        "add nodes, or ask for less",
    )


def _too_far_apart(e: _Evidence) -> Explanation:
    return Explanation(
        f"it needs {_tasks(e['wanted'])} close together, and no place is so large even when empty",
        "require a wider level of the topology, or only prefer it",
    )


def _rule(sentence: str, remedy: str) -> Callable[[_Evidence], Explanation]:
    """Of a queue's rule, with the amounts as people write them."""

    def words(e: _Evidence) -> Explanation:
        amounts = {name: _amount(e["resource"], e[name]) for name in ("bound", "used", "asked")}
        where = f"queue {e['queue']}" if e["queue"] else "the cluster"
        return Explanation(sentence.format(where=where, **amounts), remedy.format(where=where))

    return words


def _amount(resource: str, amount: float) -> str:
    if resource == "cpu":
        return f"{CpuMillis(round(amount)).text()} CPU"
    if resource == "memory":
        return f"{Bytes(round(amount)).text()} memory"
    noun = {"gpu": "GPU", "jobs": "job"}.get(resource)
    if noun is None:
        return f"{amount:g} {resource}"
    return f"{amount:g} {noun}{'' if amount == 1 else 's'}"


def _not_preemptible(e: _Evidence) -> Explanation:
    amounts = {name: _amount(e["resource"], e[name]) for name in ("nominal", "used", "asked")}
    return Explanation(
        "it cannot be preempted, so it may use no more than its queue's own {nominal}: {used} are in "
        "use and it asks for {asked}".format(**amounts),
        "let it be preempted, or raise the queue's nominal quota",
    )


def _no_room(e: _Evidence) -> Explanation:
    lacking: list[str] = e.get("short", [])
    titles = {"cpu": "CPU", "gpu": "GPUs"}
    short = " and ".join(titles.get(name, name) for name in lacking[:2])
    holders: list[str] = e.get("holders", [])
    whose = f"; most is held by {', '.join(holders[:3])}" if holders else ""
    return Explanation(
        f"it needs {_tasks(e['wanted'])} at once, and there is room for {_tasks(e['fitting'])}"
        + (f", for lack of {short}" if short else "")
        + whose,
        "it starts when running jobs finish or are preempted",
    )


def _fragmented(e: _Evidence) -> Explanation:
    if e.get("onOneNode"):
        return Explanation(
            f"it needs {_amount('gpu', e['onOneNode'])} on one node; {e['free']} are free on nodes that "
            f"suit, at most {e['largest']} on any one",
            "it starts when others end on one node, or ask for smaller tasks",
        )
    return Explanation(
        f"there is as much as it asks for, but not on the same nodes: {_tasks(e['fitting'])} of "
        f"{_tasks(e['wanted'])} fit",
        "it starts when others end, or ask for smaller tasks",
    )


def _topology(e: _Evidence) -> Explanation:
    levels = " or ".join(e["levels"])
    return Explanation(
        f"it needs {_tasks(e['wanted'])} in one {levels}, and the {levels} with most room has place for "
        f"{_tasks(e['fitting'])}",
        f"only prefer the {levels}, or wait for others there to end",
    )


def _kept(e: _Evidence) -> Explanation:
    amounts = {name: _amount(e["resource"], e[name]) for name in ("bound", "used", "asked")}
    where = f"queue {e['queue']}" if e["queue"] else "the cluster"
    guaranteed: Mapping[str, float] = e.get("guaranteed", {})
    of = ", ".join(f"{name} {_amount(e['resource'], amount)}" for name, amount in guaranteed.items())
    return Explanation(
        "what is left of {where} is kept for other queues{of}: {used} of {bound} are used or kept, and "
        "it asks for {asked}".format(where=where, of=f" ({of})" if of else "", **amounts),
        "it starts when jobs end, or less is guaranteed to others",
    )


def _behind(e: _Evidence) -> Explanation:
    names: list[str] = e.get("behind", [])
    if not names:
        return Explanation("there is room, which those before it will need")
    return Explanation(
        f"there is room now, and it would still run when {', '.join(names)} is to start there",
        "a shorter wall time may let it start before, or a higher priority",
    )


def _beyond_depth(e: _Evidence) -> Explanation:
    if "depth" not in e:
        return Explanation("so many wait before it that it was not looked at")
    return Explanation(f"{e['depth']} jobs before it have reservations, and no more are made")


def _waits_for(sentence: str) -> Callable[[_Evidence], Explanation]:
    def words(e: _Evidence) -> Explanation:
        names: list[str] = e.get("waitsFor", [])
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        return Explanation(sentence.format(names=shown))

    return words


_WORDS: dict[str, Callable[[_Evidence], Explanation]] = {
    "NamespaceNotAllowed": _namespace,
    "PriorityTooHigh": _priority,
    "NoNodes": _no_nodes,
    "NoNodeSuits": _no_node_suits,
    "TooLarge": _too_large,
    "TooFarApart": _too_far_apart,
    "TooFewShared": _fixed(
        "it asks for {asked} of {shared}, and the cluster has {total}", "ask for less, or add some"
    ),
    "OverUserCap": _rule(
        "it asks for {asked}, and one user never has more than {bound} in {where}",
        "raise the queue's limit for users, or ask for less",
    ),
    "OverLimit": _rule(
        "it asks for {asked}, and {where} never has more than {bound} for it",
        "raise the limit, or ask for less",
    ),
    "BudgetExhausted": _fixed(
        "budget {budget} of its queue is used up: {spent:g} of {hours:g} hours", "raise the budget"
    ),
    "NotPreemptible": _not_preemptible,
    "UserCap": _rule(
        "its user has {used} of the {bound} that one user may have in {where}, and it asks for {asked}",
        "it starts when other jobs of the user end",
    ),
    "Limit": _rule(
        "{where} uses {used} of its limit of {bound}, and it asks for {asked}",
        "it starts when jobs of {where} end, or the limit is raised",
    ),
    "Borrowing": _rule(
        "{where} uses {used}, may borrow up to {bound} in all, and it asks for {asked}",
        "it starts when jobs of {where} end, or it may borrow more",
    ),
    "Kept": _kept,
    "SharedLacking": _fixed(
        "{left} of {shared} are left, and it asks for {asked}", "it starts when others give them back"
    ),
    "Stopping": _fixed("its former tasks are still stopping"),
    "Dated": _fixed(
        "others run, or start, before it; it has a date", "a higher priority, or more nodes"
    ),
    "Aside": _fixed("it has waited long, and what comes free is kept for it until it is enough"),
    "Behind": _behind,
    "BeyondDepth": _beyond_depth,
    "WaitingForNode": _waiting_for_node,
    "TopologyBusy": _topology,
    "Fragmented": _fragmented,
    "NoRoom": _no_room,
    "Started": _fixed("there is room"),
    "Grown": _fixed("there is room for more of it"),
    "Departing": _fixed("its place is kept until those who leave are gone"),
    "Preempting": _waits_for("it gets the place of {names}"),
    "Consolidating": _waits_for("room is made for it by moving {names}"),
    "Preempted": _fixed("it gives way"),
    "Resized": _fixed("others gain more by these tasks than it does"),
    "Suspended": _fixed("it is suspended"),
    "Shrunk": _fixed("it may have fewer tasks than before"),
    "NodeDrained": lambda e: Explanation(f"{', '.join(e['nodes'])} is being drained"),
    "TurnOver": _fixed("it has had its turn"),
    "Consolidated": _fixed("it moves, so that there is room in one piece"),
    "WallTime": _fixed("its wall time of {wallSeconds:g} s is over"),
    "BelowMinimum": _fixed("it has had fewer than its {minimum} tasks for too long"),
}

CODES = tuple(_WORDS)
"""Every code that a plan may hold; reasons to wait come first."""
