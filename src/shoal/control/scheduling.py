"""The scheduler's loop: a snapshot, a decision, and its writes in their safe order.

One pass looks at everything, so there is one key. Changes that come close together cost one pass, and
a pass that takes long is followed by a rest as long, so that a burst of submissions does not starve
the rest of the server. After a kill between any two writes the next pass decides from what is true.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from shoal import faults, metrics
from shoal.control.cache import ObjectCache
from shoal.control.context import ControllerContext
from shoal.control.queue_usage import attained_service, task_holds
from shoal.control.runner import Key, Source
from shoal.control.scheduler_cache import UNUSABLE, SchedulerCache, Skipped
from shoal.objects import codec
from shoal.objects.errors import Conflict, Invalid, NotFound
from shoal.objects.job import Allocation, Job, Scheduling
from shoal.objects.kinds import JOB, NODE, QUEUE, SECRET
from shoal.objects.meta import Stamp
from shoal.schedule.cycle.invariants import broken
from shoal.schedule.decide import Decided, Decider
from shoal.schedule.explain import explain
from shoal.schedule.plan import Plan, Policy, Write
from shoal.schedule.record import Record
from shoal.schedule.snapshot import JobRow, NodeRow, Snapshot
from shoal.schedule.speed.learned import Slower

EVERYTHING: Key = ("", "everything")
"""The only key."""

_log = logging.getLogger(__name__)

WRITER = "scheduler"
_SUFFIX = ".json"
_COALESCE_SECONDS = 0.002
_SAFETY_SECONDS = 5.0
"""A pass at least so often."""
_LONGEST_REST_SECONDS = 0.25
_DENIALS_PER_PASS = 100
"""Jobs that only get their reason to wait: the rest follow in the next pass, after any new start."""
_REFRESH_SECONDS = 60.0
_LOOKED_AT = 20
"""Of so many plans that do something one is looked at."""
_MOST_EXCLUDED_AT_ONCE = 16
_MOST_BENEFICIARIES = 20
_REFRESHED = 20
"""So many waiting jobs get their numbers renewed so often."""


class SchedulingController:
    """See the module's docstring; needs one thread."""

    name = "scheduling"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._jobs: ObjectCache[Job] = context.cache(JOB)
        self._clock = context.clock
        self._decider = Decider()
        self._excluded: dict[str, tuple[JobRow, str]] = {}
        self._excluded_nodes: dict[str, tuple[NodeRow, str]] = {}
        """By uid: rows with which no decision can be made, and why."""
        self._reported: dict[str, Skipped] = {}
        """By uid: why a job is left out, as its status says it."""
        self._scheduler_cache = SchedulerCache(context, slower=self._say_slower)
        self._plans = 0
        self._not_before = 0.0
        self._refresh_at = 0.0
        self._again = 0.0

    def sources(self) -> Sequence[Source]:
        """Everything that a decision depends on."""
        caches = (*map(self._context.cache, (JOB, QUEUE, NODE, SECRET)), self._context.tasks)
        return tuple(
            Source(cache, lambda old, new: (EVERYTHING,), _COALESCE_SECONDS) for cache in caches
        )

    def reconcile(self, key: Key, now: float) -> float | None:
        """One pass; see `shoal.control.runner.Controller.reconcile`."""
        begun = self._clock.monotonic()
        if begun < self._not_before:
            return self._not_before - begun
        snapshot, news = self._scheduler_cache.snapshot()
        if not news and begun < self._again:
            return self._again - begun
        self._again = 0.0  # whatever stops this pass calls for another
        policy = self._policy_now(begun)
        try:
            decided = self._decide(snapshot, policy, now)
        except Exception:
            metrics.DECISIONS.labels("failed").inc()
            raise
        plan = decided.plan
        metrics.DECISIONS.labels("changed" if plan.writes else "unchanged").inc()
        metrics.DECISION_SECONDS.observe(self._clock.monotonic() - begun)
        self._report_skipped(now)
        excluded = {name: reason for name, (_, reason) in self._excluded_nodes.items()}
        self._context.node_states.unusable({**self._scheduler_cache.unusable_nodes(), **excluded})
        self._context.order.names = decided.steps.order
        try:
            left = self._apply(plan, now)
        finally:  # no write waits for these
            if plan.writes and self._context.record is not None:
                self._context.record(Record(now=now, policy=policy, snapshot=snapshot, plan=plan))
            self._look_at(decided, now + policy.rules.notice_seconds)
        ended = self._clock.monotonic()
        self._not_before = ended + min(ended - begun, _LONGEST_REST_SECONDS)
        wait = _COALESCE_SECONDS if left else _SAFETY_SECONDS
        if plan.again_at is not None:
            wait = min(wait, max(_COALESCE_SECONDS, plan.again_at - now))
        self._again = ended + wait
        return wait

    def _decide(self, snapshot: Snapshot, policy: Policy, now: Stamp) -> Decided:
        """The decision, without jobs and nodes that make it fail; those stay out until they change."""
        try:
            return self._decider.decide(self._without_excluded(snapshot), policy, now)
        except Exception as error:
            usable = self._without_excluded(snapshot)
            found = self._culprits(usable, policy, now)
            node = None if len(found) == 1 else self._culprit_node(usable, policy, now)
            if node is not None:
                _log.error("node %s makes a decision fail: %s", node[0].name, node[1])
                self._excluded_nodes[node[0].name] = node
            elif not found:
                raise
            else:
                for row, reason in found:
                    _log.error("job %s/%s makes a decision fail: %s", row.namespace, row.name, reason)
                    self._excluded[row.uid] = (row, reason)
            _log.debug("the decision that failed", exc_info=error)
            return self._decider.decide(self._without_excluded(snapshot), policy, now)

    def _without_excluded(self, snapshot: Snapshot) -> Snapshot:
        if self._excluded_nodes:
            there = {row.name: row for row in snapshot.nodes}
            self._excluded_nodes = {
                name: (row, reason)
                for name, (row, reason) in self._excluded_nodes.items()
                if there.get(name) == row
            }
            nodes = tuple(_unused(r) if r.name in self._excluded_nodes else r for r in snapshot.nodes)
            snapshot = msgspec.structs.replace(snapshot, nodes=nodes)
        if not self._excluded:
            return snapshot
        rows = {row.uid: row for row in snapshot.jobs if row.uid in self._excluded}
        self._excluded = {
            uid: (row, reason) for uid, (row, reason) in self._excluded.items() if rows.get(uid) is row
        }
        out = self._excluded
        if not out:
            return snapshot
        holds = (hold for uid in sorted(out) for hold in task_holds(self._context.tasks.of_job(uid)))
        jobs = tuple(row for row in snapshot.jobs if row.uid not in out)
        strangers = (*snapshot.strangers, *holds)
        return msgspec.structs.replace(snapshot, jobs=jobs, strangers=strangers)

    def _culprits(self, snapshot: Snapshot, policy: Policy, now: Stamp) -> list[tuple[JobRow, str]]:
        """Rows without which a decision can be made: each the last of the shortest run of jobs, in
        order, that fails. Few decisions each: their number doubles the jobs."""

        def failure(jobs: Sequence[JobRow]) -> str:
            return _failure(msgspec.structs.replace(snapshot, jobs=tuple(jobs)), policy, now)

        jobs, found = list(snapshot.jobs), list[tuple[JobRow, str]]()
        while len(found) < _MOST_EXCLUDED_AT_ONCE and (reason := failure(jobs)):
            if failure([]):
                return []  # not a job's fault
            last, reason = _shortest(len(jobs), lambda count: failure(jobs[:count]), reason)
            found.append((jobs.pop(last), reason))
        return found

    def _culprit_node(
        self, snapshot: Snapshot, policy: Policy, now: Stamp
    ) -> tuple[NodeRow, str] | None:
        """The one node without which a decision can be made, if there is one."""
        nodes = snapshot.nodes

        def failure(count: int) -> str:
            rows = (*nodes[:count], *map(_unused, nodes[count:]))
            return _failure(msgspec.structs.replace(snapshot, nodes=rows), policy, now)

        if not (reason := failure(len(nodes))) or failure(0):
            return None
        last, reason = _shortest(len(nodes), failure, reason)
        rows = (*nodes[:last], _unused(nodes[last]), *nodes[last + 1 :])
        if _failure(msgspec.structs.replace(snapshot, nodes=rows), policy, now):
            return None
        return nodes[last], reason

    def _report_skipped(self, now: Stamp) -> None:
        """Say on each job that is left out why it is."""
        left_out = self._scheduler_cache.skipped()
        for uid, (row, reason) in self._excluded.items():
            left_out[uid] = Skipped((row.namespace, row.name), UNUSABLE, {"error": reason})
        self._reported = {uid: said for uid, said in self._reported.items() if uid in left_out}
        for uid, skipped in sorted(left_out.items()):
            job = self._jobs.get(skipped.key)
            if self._reported.get(uid) == skipped or job is None or job.metadata.uid != uid:
                continue
            code, evidence = skipped.code, dict(skipped.evidence)
            message = explain(code, evidence).sentence
            old = job.status.scheduling
            scheduling = Scheduling(code=code, message=message, evidence=evidence, since=now)
            try:
                if (old.code, old.message) != (code, message):
                    self._context.guard.check()
                    fields = {"scheduling": codec.builtins(scheduling)}
                    self._jobs.patch_status(job, writer=WRITER, fields=fields)
                    data = {"code": code, "evidence": evidence}
                    counter = job.status.writers.get(WRITER, 0) + 1
                    self._context.recorder.decision(job, f"{counter}.0", code, message, data)
            except (Conflict, NotFound, Invalid) as error:
                _log.warning("job %s cannot be marked as left out: %s", "/".join(skipped.key), error)
                continue  # tried again by the next pass
            self._reported[uid] = skipped

    def _look_at(self, decided: Decided, soon: Stamp) -> None:
        """Now and then: verify the plan, and report what is wrong with it. It is applied all the same,
        because nodes admit for themselves."""
        if not decided.steps.steps:
            return
        self._plans += 1
        if self._plans % _LOOKED_AT == 1:
            for sentence in broken(decided.cluster, decided.steps, soon):
                _log.error("a plan breaks what has to hold: %s", sentence)

    def _policy_now(self, begun: float) -> Policy:
        policy = self._context.policy()
        if begun < self._refresh_at:
            return policy
        self._refresh_at = begun + _REFRESH_SECONDS
        return msgspec.structs.replace(policy, refresh=_REFRESHED)

    def _apply(self, plan: Plan, now: Stamp) -> int:
        denials = 0
        for write in plan.writes:
            if write.slots is not None:
                self._write(write, now)
                faults.point("server.scheduling.allocation")
            elif denials < _DENIALS_PER_PASS:
                with suppress(Conflict):  # nothing hangs on it, and the change calls for another pass
                    self._write(write, now)
                faults.point("server.scheduling.reason")
                denials += 1
            else:
                return len(plan.writes)
        return 0

    def _write(self, write: Write, now: Stamp) -> None:
        job = self._jobs.get((write.job.namespace, write.job.name))
        if job is None or job.metadata.uid != write.job.uid:
            raise Conflict(f"job {write.job.name} has gone since the decision")
        if job.status.allocation.id != write.allocation:
            raise Conflict(f"job {write.job.name} has other slots than were decided on")
        self._context.guard.check()
        try:
            job = self._jobs.patch_status(
                job, writer=WRITER, generation=write.generation, fields=_fields(job, write, now)
            )
        except (NotFound, Invalid) as error:  # it went, or cannot be decoded any more
            raise Conflict(error.message) from error
        self._record(job, write)

    def _say_slower(self, job: Job, found: Slower) -> None:
        evidence = dataclasses.asdict(found)
        key = f"slower.{job.status.allocation.id}.{found.best}"
        message = explain("Slower", evidence).sentence
        data = {"code": "Slower", "evidence": evidence}
        self._context.recorder.decision(job, key, "Slower", message, data)

    def _record(self, job: Job, write: Write) -> None:
        counter = job.status.writers.get(WRITER, 0)
        for position, step in enumerate(write.steps):
            if step.code and step.code != "Finished":  # ends are recorded as attempts
                self._context.recorder.decision(
                    job,
                    f"{counter}.{position}",
                    step.code,
                    explain(step.code, step.evidence).sentence,
                    codec.builtins(step),
                )


def _failure(snapshot: Snapshot, policy: Policy, now: Stamp) -> str:
    """What a decision raises; empty: nothing."""
    try:
        Decider().decide(snapshot, policy, now)
    except Exception as error:  # noqa: BLE001 - what it is does not matter here
        return f"{type(error).__name__}: {error}"
    return ""


def _shortest(fails: int, failure: Callable[[int], str], reason: str) -> tuple[int, str]:
    """The last position of the shortest run from the start that fails, and why it does; `fails` does."""
    works = 0
    while fails - works > 1:
        middle = (works + fails) // 2
        if why := failure(middle):
            fails, reason = middle, why
        else:
            works = middle
    return fails - 1, reason


def _unused(row: NodeRow) -> NodeRow:
    """The node as one on which nothing starts, and what it holds stays held."""
    return NodeRow(name=row.name, ready=False, lost=row.lost)


def _fields(job: Job, write: Write, now: Stamp) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if write.slots is not None:
        held = job.status.allocation
        since = (held.since if held.slots else now) if write.slots else 0.0
        allocation = Allocation(
            id=write.allocation + 1,
            slots=write.slots,
            reason=write.reason,
            beneficiaries=_beneficiaries(write),
            changed=now,
            since=since,
            served=attained_service(job, now),
        )
        fields["allocation"] = codec.builtins(allocation)
    old = job.status.scheduling
    if not (write.code or write.reserved or write.promised is not None):
        if old != Scheduling():
            fields["scheduling"] = None
        return fields
    scheduling = Scheduling(
        code=write.code,
        message=explain(write.code, write.evidence).sentence,
        evidence=write.evidence,
        since=old.since if old.code == write.code else now,
        reserved=write.reserved,
        promised=write.promised,
        place=write.place,
    )
    if scheduling != old:
        fields["scheduling"] = codec.builtins(scheduling)
    return fields


def _beneficiaries(write: Write) -> tuple[str, ...]:
    named = (name for step in write.steps for name in getattr(step, "evidence", {}).get("for", ()))
    return tuple(dict.fromkeys(named))[:_MOST_BENEFICIARIES]


def recorded(folder: Path) -> list[Path]:
    """The files of a folder, the oldest first."""
    return sorted(folder.glob(f"*{_SUFFIX}"))


class DecisionFiles:
    """Writes into a folder of its own. `most` says how many to keep, and may change; 0 records nothing.

    That a disk is full stops no decision: what could not be written is missing, and logged once.
    """

    def __init__(self, folder: Path, most: Callable[[], int]) -> None:
        self._folder = folder
        self._most = most
        self._failed = False

    def record(self, record: Record) -> None:
        """Keep it, and no more than so many."""
        most = self._most()
        if most <= 0:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{record.now:017.6f}{_SUFFIX}"
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_bytes(codec.encode(record))
            draft.replace(path)
            for old in recorded(self._folder)[:-most]:
                old.unlink(missing_ok=True)
            self._failed = False
        except OSError as error:
            if not self._failed:
                _log.warning("decisions cannot be recorded in %s: %s", self._folder, error)
            self._failed = True
