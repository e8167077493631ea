"""What controllers call to record what happens: builds entries, and counts events that repeat.

A reconcile loop says the same thing again and again; an event equal to one of the last
`COALESCE_SECONDS` raises that one's count. Attempts, usage and decisions have ids made of what they
are about, so a controller that was killed and does its work again records nothing twice.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from typing import Any, Literal

from shoal.clock import Clock
from shoal.history.base import About, Entry, EntryType, History
from shoal.objects.meta import Object, Stamp
from shoal.objects.task import TaskSpec

COALESCE_SECONDS = 300.0
"""Equal events become one entry for this long after the first."""

_REMEMBERED = 4096

Severity = Literal["Normal", "Warning"]


def about(obj: Object) -> About:
    """The name of the object in history."""
    meta = obj.metadata
    return About(kind=obj.kind, namespace=meta.namespace, name=meta.name, uid=meta.uid)


class Recorder:
    """Records into one History. Thread-safe; never waits."""

    def __init__(self, history: History, clock: Clock) -> None:
        self._history = history
        self._clock = clock
        self._lock = threading.Lock()
        self._recent: OrderedDict[_Equal, tuple[float, Entry]] = OrderedDict()

    def event(
        self,
        about: About,
        reason: str,
        message: str,
        *,
        severity: Severity = "Normal",
        actor: str = "",
        data: dict[str, Any] | None = None,
    ) -> None:
        """Something happened to the object. `reason` is a CamelCase code, `message` one sentence.

        `actor` made the write. Equal events close together are counted, and `data["last"]` is the last
        time.
        """
        extra = {**(data or {}), **({"actor": actor} if actor else {})}
        now = self._clock.now()
        entry = Entry(
            id=f"event/{about.uid}/{secrets.token_hex(8)}",
            type="event", about=about, at=now, reason=reason, message=message, severity=severity,
            data=extra,
        )  # fmt: skip
        equal = (about, reason, message, severity, actor)
        steady = self._clock.monotonic()
        with self._lock:  # the append too, so that counts reach the history in order
            first, known = self._recent.get(equal, (steady, None))
            if known is not None and steady - first < COALESCE_SECONDS:
                entry = _counted(known, extra, now)
            else:
                first = steady
            self._recent[equal] = (first, entry)
            self._recent.move_to_end(equal)
            if len(self._recent) > _REMEMBERED:
                self._recent.popitem(last=False)
            self._history.append((entry,))

    def attempt(
        self,
        about: About,
        task: TaskSpec,
        *,
        started: Stamp,
        ended: Stamp = 0.0,
        exit_code: int | None = None,
        reason: str = "",
        stop_reason: str = "",
        message: str = "",
    ) -> None:
        """A task's start; the entry is completed once the task has ended.

        `started` is 0 for a task that never was. `reason` says how it ended, `stop_reason` why the
        platform ended it.
        """
        data: dict[str, Any] = {
            **_task(task), "attempt": task.attempt, "node": task.placement.node, "started": started,
        }  # fmt: skip
        if task.placement.devices:
            data["devices"] = task.placement.devices
        if ended:
            data |= {"ended": ended, "exitCode": exit_code}
        if stop_reason:
            data["stopReason"] = stop_reason
        bad = bool(ended) and exit_code != 0 and not stop_reason
        entry = self._entry(about, "attempt", task.name, started or ended or self._clock.now())
        self._append(entry, reason=reason, message=message, data=data, severity=_severity(bad))

    def usage(
        self,
        about: About,
        task: TaskSpec,
        *,
        ended: Stamp,
        cpu_seconds: float,
        peak_memory_bytes: int,
        gpu_ratio: float | None = None,
    ) -> None:
        """What a task has used, once it has ended; `value` is the CPU seconds."""
        data: dict[str, Any] = {
            **_task(task), "cpuSeconds": cpu_seconds, "peakMemoryBytes": peak_memory_bytes,
        }  # fmt: skip
        if gpu_ratio is not None:
            data["gpuRatio"] = gpu_ratio
        self._append(self._entry(about, "usage", task.name, ended), value=cpu_seconds, data=data)

    def decision(
        self, about: About, key: str, code: str, message: str, evidence: dict[str, Any]
    ) -> None:
        """A step of a plan for the object, with its evidence. `key` separates it from the object's other
        decisions, such as the id of the allocation that it wrote: the same key is recorded once."""
        entry = self._entry(about, "decision", key, self._clock.now())
        self._append(entry, reason=code, message=message, data=evidence)

    def audit(self, about: About, verb: str, actor: str, *, before: str, after: str) -> None:
        """A write through the API. Never counted together with another: each is an entry."""
        entry = self._entry(about, "audit", secrets.token_hex(8), self._clock.now())
        digests = {name: text for name, text in (("before", before), ("after", after)) if text}
        message = f"{verb} by {actor}"
        self._append(entry, reason=verb, message=message, data={"actor": actor, **digests})

    def metric(
        self, about: About, name: str, value: float, *, at: Stamp, labels: dict[str, str] | None = None
    ) -> None:
        """One point of a metric of the object."""
        entry = self._entry(about, "metric", secrets.token_hex(8), at)
        self._append(entry, reason=name, value=value, data=dict(labels or {}))

    def _entry(self, about: About, kind: EntryType, key: str, at: Stamp) -> dict[str, Any]:
        return {"id": f"{kind}/{about.uid}/{key}", "type": kind, "about": about, "at": at}

    def _append(self, entry: dict[str, Any], **rest: Any) -> None:
        self._history.append((Entry(**entry, **rest),))


_Equal = tuple[About, str, str, Severity, str]


def _counted(known: Entry, data: dict[str, Any], now: Stamp) -> Entry:
    return Entry(
        id=known.id, type="event", about=known.about, at=known.at, reason=known.reason,
        message=known.message, severity=known.severity, count=known.count + 1,
        data={**data, "last": now},
    )  # fmt: skip


def _task(task: TaskSpec) -> dict[str, Any]:
    return {
        "task": task.name, "role": task.role, "index": task.index, "incarnation": task.incarnation,
    }  # fmt: skip


def _severity(bad: bool) -> Severity:
    return "Warning" if bad else "Normal"
