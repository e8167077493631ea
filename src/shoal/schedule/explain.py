"""A decision's code and numbers in words: one sentence, and what would change it.

The sentence that a job's status shows, the one that `shoal explain` prints, and the one in history all
come from here, so there is one reason and it is the true one. Most codes are those of the decision
itself (`cycle.words`); the others are of what a server alone knows: queues that are gone, placements
that were refused, nodes that are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shoal.objects.secret import DEFAULT_KEY
from shoal.schedule.cycle import words
from shoal.schedule.explanation import Explanation

__all__ = ["CODES", "Explanation", "explain"]

_Evidence = Mapping[str, Any]


def explain(code: str, evidence: _Evidence) -> Explanation:
    """The words for a code; an unknown one (of a newer version) explains itself by its name."""
    if not code:
        return Explanation("nothing holds the job back")
    own = _WORDS.get(code)
    return own(evidence) if own is not None else words.say(code, evidence)


def _queue_missing(e: _Evidence) -> Explanation:
    queue = e.get("queue", "")
    return Explanation(
        f"there is no queue {queue}", f"create the queue {queue}, or give the job another one"
    )


def _unusable(e: _Evidence) -> Explanation:
    return Explanation(
        f"the job is left out of scheduling: its spec or status cannot be used ({e.get('error', '')})",
        "correct its spec, or delete the job and submit it again",
    )


def _secret_missing(e: _Evidence) -> Explanation:
    name, key, near = e.get("secret", ""), e.get("key", ""), e.get("near", "")
    namespace = e.get("namespace", "")
    key_alone = e.get("exists", bool(key))  # evidence of earlier versions has the key only then
    if key_alone:
        sentence = f"key {key} of secret {name} is missing"
        remedy = f"it starts once the key exists: shoal secret set {name} --key {key}"
    else:
        sentence = f"there is no secret {name} in namespace {namespace}"
        option = f" --key {key}" if key not in ("", DEFAULT_KEY) else ""
        remedy = f"it starts once the secret exists: shoal secret create {name}{option}"
    hint = f" (did you mean {near}?)" if near else ""
    space = f" -n {namespace}" if namespace not in ("", "default") else ""
    return Explanation(f"the job waits: {sentence}{hint}", remedy + space)


def _refused(e: _Evidence) -> Explanation:
    why = e.get("message", "")
    sentence = f"node {e.get('node', '')} refused the job a moment ago and is left alone for a while"
    if e.get("reason") == "IsolationUnavailable":  # trying again will hardly help
        remedy = "shoal doctor shows what is missing; isolation: default does without it"
    else:
        remedy = "it is tried again by itself"
    return Explanation(f"{sentence}: {why}" if why else sentence, remedy)


def _preempted(e: _Evidence) -> Explanation:
    jobs: list[str] = e.get("for") or []
    whom = ", ".join(jobs) or "a job that goes first"
    tasks, left = e.get("tasks", 0), e.get("left", 0)
    gives = "gives" if tasks == 1 else "give"
    sentence = f"{_count(tasks, 'task')} {gives} up {'its place' if tasks == 1 else 'their places'}"
    if left:
        return Explanation(f"{sentence} for {whom}; {left} go on", "it grows again when there is room")
    return Explanation(f"{sentence} for {whom}", "it starts again when there is room")


def _slower(e: _Evidence) -> Explanation:
    best, most = e.get("best", 0), e.get("most", 0)
    return Explanation(
        f"it makes {e.get('speed', 0.0):.3g} steps a second with {_count(best, 'task')} and "
        f"{e.get('with_most', 0.0):.3g} with {most}, so that it is given no more for now",
        f"declare its speed.curve if that is wrong; else scale it to {best}",
    )


def _step(sentence: str) -> Callable[[_Evidence], Explanation]:
    def words_of(e: _Evidence) -> Explanation:
        nodes: list[str] = e.get("nodes") or []
        return Explanation(sentence.replace("{nodes}", ", ".join(nodes) or "its node"))

    return words_of


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


_WORDS: dict[str, Callable[[_Evidence], Explanation]] = {
    "QueueMissing": _queue_missing,
    "PlacementRefused": _refused,
    "Unusable": _unusable,
    "SecretMissing": _secret_missing,
    "Started": _step("the job was given its slots"),
    "Grown": _step("the job was given more slots"),
    "Slower": _slower,
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

CODES = tuple(dict.fromkeys(("QueueMissing", *words.CODES, *_WORDS)))
"""Every code that a plan, or what is decided beside it, may hold; the reasons to wait come first, in the
order in which they are looked for."""
