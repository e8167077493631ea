"""One pass over a job: the observed state and the time give the actions, in an order safe to cut.

1. Without the finalizer nothing starts: a job with slots gets it first.
2. Ends that count go into the draft; then the success rule, limits and cancellation may decide.
3. Members become stale if their slot was taken away, moved, or lost with its node; slots without one
   become starts.
4. One status write carries all of that. After it: acknowledge stale ends, stop stale tasks, start.
5. A deleted job is released once none of its tasks is left on any node, and no job waits for its end.

A gang of fixed size cannot change: a difference between its members and its slots makes the whole
attempt stale. Where tasks restart one by one but are given the addresses of all others at their start
(TensorFlow's clusters), a new size or place does the same.

Starts are desired state: a slot's task is ensured, and bootstrapped once the endpoints of all that start
together are observed. A start is prepared by writing the index's node into the status; only then is the
node asked. A node that becomes unreachable in between is known to hold the index, and nothing is started
a second time elsewhere until it answers or is declared lost.
"""

from __future__ import annotations

from shoal.cluster.base import StopReason, Task
from shoal.control.job.actions import (
    Acknowledge,
    Action,
    AddFinalizer,
    Bootstrap,
    CleanUp,
    Decision,
    DeleteJob,
    Ensure,
    Note,
    PatchStatus,
    RemoveFinalizer,
    Stop,
)
from shoal.control.job.completion import (
    Completion,
    count_ends,
    count_refusals,
    evaluate_completion,
    lost_too_often,
    seconds_until_limit,
)
from shoal.control.job.dependencies import resolve_dependencies, waiting_message
from shoal.control.job.observe import (
    FINALIZER,
    Observed,
    Slot,
    StatusDraft,
    count_nodes,
    fixed_membership,
    slot_of,
    wanted_slots,
)
from shoal.objects.elastic import is_coordinator
from shoal.objects.job import Phase, Role, restart_scope
from shoal.objects.task import Placement, TaskSpec, task_name
from shoal.objects.text import cores, memory, plural

_REASSERT_SECONDS = 1.0
"""What was asked of the cluster is observed within this time, or is asked for again."""


def reconcile_job(observed: Observed, now: float) -> Decision:
    """What to do next for the job. Pure: equal arguments give equal decisions."""
    has_finalizer = FINALIZER in observed.job.metadata.finalizers
    if not has_finalizer and not observed.deleted and not observed.terminal and observed.assignments:
        return Decision((AddFinalizer(),))
    draft, notes = StatusDraft(observed.job), list[Note]()
    draft.correct_stamps(now)
    count_nodes(observed, draft, now)
    starts: list[Action] = []
    waits: list[float | None] = []
    if not observed.terminal:
        notes, starts, waits = _reconcile_active(observed, draft, now)
    wanted = wanted_slots(observed, draft)
    _describe_phase(observed, draft, wanted, now)
    actions: list[Action] = []
    fields = draft.fields()
    idle = observed.job.status.phase == "Pending" and set(fields) <= {"observedGeneration"}
    if fields and not idle:  # a job that only waits is not written to
        actions.append(PatchStatus(fields))
    actions += notes
    actions += _stop_and_acknowledge(observed, draft, wanted)
    actions += starts
    if any(isinstance(action, Stop | Ensure | Bootstrap) for action in actions):
        waits.append(_REASSERT_SECONDS)
    actions += _finalize(observed, draft, has_finalizer, now, waits)
    times = [wait for wait in waits if wait is not None]
    return Decision(tuple(actions), min(times) if times else None)


def _reconcile_active(
    observed: Observed, draft: StatusDraft, now: float
) -> tuple[list[Note], list[Action], list[float | None]]:
    notes = _drop_lost_members(observed, draft)
    completion = lost_too_often(observed, draft, notes)
    for count in (count_refusals, count_ends):
        if completion is None:
            completion, counted = count(observed, draft, now)
            notes += counted
    never = resolve_dependencies(observed, draft, now)
    completion = completion or evaluate_completion(observed, draft, now)
    if completion is None and never and not observed.deleted:
        completion = Completion("Failed", "DependencyNeverSatisfied", never)
    if completion is not None:
        _close(draft, completion, now)
        notes.append(
            Note(completion.phase, completion.message or _closing(draft), completion.phase == "Failed")
        )
        return notes, [], []
    wanted = wanted_slots(observed, draft)
    notes += _reconcile_members(observed, draft, wanted)
    notes += _missing_isolations(observed, draft, now)
    before = draft.members()
    starts, wait = _missing_starts(observed, draft, wanted, now)
    new = [slot for slot in draft.members() if slot not in before]
    if new:  # else a start that was cut short is carried on
        notes.append(_started_note(observed, draft, new))
    return notes, starts, [wait, seconds_until_limit(observed, draft, now)]


def _close(draft: StatusDraft, completion: Completion, now: float) -> None:
    draft.phase, draft.reason, draft.message = completion.phase, completion.reason, completion.message
    draft.finished = now
    for kind in ("Preempting", "Resizing", "Restarting"):
        draft.condition(kind, False, "", "", now)
    task = completion.task
    if task is not None and task.outcome is not None:
        draft.exit_code, draft.decided_by = task.outcome.exit_code, task.spec.name
    elif completion.phase == "Succeeded":
        draft.exit_code = 0


def _closing(draft: StatusDraft) -> str:
    restarts = f" after {draft.failures} restarts" if draft.failures else ""
    return f"finished in attempt {draft.attempt}{restarts}"


def _missing_isolations(observed: Observed, draft: StatusDraft, now: float) -> list[Note]:
    """A condition that names each isolation that a node could not give the job, and an event when one is
    found for the first time."""
    old = draft.conditions.get("IsolationMissing")
    known = old.message if old is not None else ""
    found = sorted({entry for task in observed.tasks for entry in task.unenforced if entry not in known})
    if not found:
        return []
    message = "; ".join([known, *found] if known else found)
    draft.condition("IsolationMissing", True, "NotEnforced", message, now)
    return [Note("IsolationMissing", f"its tasks run without {'; '.join(found)}", warning=True)]


def _started_note(observed: Observed, draft: StatusDraft, new: list[Slot]) -> Note:
    """The start of these slots; counts it as a restart where they have run before."""
    nodes = ", ".join(sorted({draft.nodes[slot] for slot in new}))
    again = [slot for slot in new if slot in draft.exit_codes]
    if restart_scope(observed.job.spec) == "Gang":
        draft.restarts += bool(again)
    else:
        draft.restarts += len(again)
    return Note(
        "Restarted" if again else "Started",
        f"attempt {draft.attempt}: {len(new)} {'tasks' if len(new) > 1 else 'task'} on {nodes}",
    )


def _stop_and_acknowledge(
    observed: Observed, draft: StatusDraft, wanted: dict[Slot, Placement]
) -> list[Action]:
    """Acknowledge ends that are recorded, and stop what should not run."""
    actions: list[Action] = []
    keep_rest = observed.job.spec.clean_up == "None" and draft.phase in ("Succeeded", "Failed")
    for task in sorted(observed.tasks, key=lambda task: task.spec.name):
        slot = slot_of(task)
        current = task.spec.incarnation == draft.current(slot) and slot not in draft.outcomes
        if task.phase == "Ended":
            if not current or draft.finished:
                actions.append(Acknowledge(task))
        elif not (current and slot in wanted) and not _may_stay(observed, task, wanted, keep_rest):
            reason = _why(observed, draft, task)
            if task.stop_reason is None:
                actions.append(Stop(task.spec.key, float(observed.job.spec.grace_period), reason))
    return actions


def _may_stay(observed: Observed, task: Task, wanted: dict[Slot, Placement], keep_rest: bool) -> bool:
    """The rest of a decided job may be left to end by itself. A coordinator never would: it goes last,
    for those that have notice leave in order only while it is there."""
    spec = observed.job.spec
    if not is_coordinator(spec, task.spec.role):
        return keep_rest and not observed.deleted
    others = (each for each in observed.tasks if not is_coordinator(spec, each.spec.role))
    ends = not any(not is_coordinator(spec, role) for role, _ in wanted)
    return ends and any(each.phase != "Ended" for each in others)


def _why(observed: Observed, draft: StatusDraft, task: Task) -> StopReason:
    spec = observed.job.spec
    if observed.deleted:
        return "Deleted"
    limits: dict[str, StopReason] = {
        "WallTimeExceeded": "WallTime",
        "NodeHoursExceeded": "NodeHours",
        "IdleTimeout": "IdleTimeout",
    }
    if draft.phase == "Failed" and draft.reason in limits:
        return limits[draft.reason]
    if draft.finished:
        return "Cancelled" if draft.phase == "Cancelled" else "JobFinished"
    if spec.cancelled:
        return "Cancelled"
    if spec.suspend:
        return "Suspended"
    if slot_of(task) in observed.assignments:
        return "GangRestart" if restart_scope(observed.job.spec) == "Gang" else "Fenced"
    reasons: dict[str, StopReason] = {"Shrunk": "Shrunk", "NodeDrained": "NodeDrained"}
    return reasons.get(observed.job.status.allocation.reason, "Preempted")


def _finalize(
    observed: Observed, draft: StatusDraft, has_finalizer: bool, now: float, waits: list[float | None]
) -> list[Action]:
    """What follows once the job is decided or deleted and nothing of it is left."""
    left = bool(observed.tasks) or bool(draft.waits_for(observed))
    left = left or (observed.terminal and observed.awaited)
    if observed.deleted:
        if (
            left or not has_finalizer
        ):  # outputs stay unless the clean-up says All: deleting a Job loses no model
            return []
        return [CleanUp(outputs=observed.job.spec.clean_up == "All"), RemoveFinalizer()]
    if not draft.finished or not observed.terminal or observed.tasks or observed.awaited:
        return []
    actions: list[Action] = [CleanUp(outputs=True)] if observed.job.spec.clean_up == "All" else []
    ttl = observed.job.spec.ttl_after_finished
    if ttl is None:
        return actions
    wait = draft.finished + float(ttl) - now
    waits.append(max(0.0, wait))
    return [*actions, DeleteJob()] if wait <= 0 else actions


def _drop_lost_members(observed: Observed, draft: StatusDraft) -> list[Note]:
    """Make stale what a lost node held, with its gang: one failure of the infrastructure.

    Comes before ends are counted, for its peers' failures are no more than the echo of the loss.
    """
    lost = {slot: node for slot, node in draft.members().items() if node in observed.lost}
    if not lost or observed.job.spec.cancelled or observed.deleted:
        for slot in lost:
            draft.next_incarnation(slot)
        return []
    draft.infrastructure_failures += 1
    if restart_scope(observed.job.spec) == "Gang" or fixed_membership(observed.job):
        draft.next_attempt()
    else:
        for slot in lost:
            draft.next_incarnation(slot)
    nodes = ", ".join(sorted(set(lost.values())))
    return [Note("NodeLost", f"node {nodes} was declared lost with {len(lost)} tasks", warning=True)]


def _reconcile_members(
    observed: Observed, draft: StatusDraft, wanted: dict[Slot, Placement]
) -> list[Note]:
    """Make stale what no longer belongs; burns no budget.

    The members of a cancelled or deleted job stay members until they have ended: nothing follows them.
    """
    if observed.job.spec.cancelled or observed.deleted:
        return []
    members, gang = draft.members(), restart_scope(observed.job.spec) == "Gang"
    gone = [slot for slot, node in members.items() if _moved(wanted.get(slot), node)]
    gone += [slot for slot in _other_devices(observed, draft, wanted) if slot not in gone]
    joined = [slot for slot in wanted if slot not in members]
    if not gang:  # an index that has run before is starting again, and the others know it
        joined = [slot for slot in joined if draft.current(slot) == 1 and fixed_membership(observed.job)]
    if not members or not (gone or joined):
        return []
    notes = [_note(observed, gone)] if gone else []
    if gang or fixed_membership(observed.job):
        draft.next_attempt()
        return notes
    for slot in gone:
        draft.next_incarnation(slot)
    if not draft.members() and not wanted and observed.job.spec.runtime != "elastic":
        draft.attempt += 1
    return notes


def _note(observed: Observed, gone: list[Slot]) -> Note:
    """That tasks give up their places: what they asked for, and the jobs that get it."""
    spec, held = observed.job.spec, observed.job.status.allocation
    reason = "Suspended" if spec.suspend else held.reason or "Stopping"
    verb = "gives up its place" if len(gone) == 1 else "give up their places"
    asked = {role.name: role.resources for role in spec.roles}
    each = [asked[role] for role, _ in gone if role in asked]
    cpu, held_memory = sum(one.cpu for one in each), sum(one.memory or 0 for one in each)
    gpus = sum(one.gpu + (one.gpu_share or 0.0) for one in each)
    amounts = [f"{cores(cpu)} cpu"] if cpu else []
    amounts += [f"{memory(held_memory)} memory"] if held_memory else []
    amounts += [f"{gpus:g} GPU{'' if gpus == 1 else 's'}"] if gpus else []
    freed = f" ({', '.join(amounts)})" if amounts else ""
    message = f"{plural(len(gone), 'task')}{freed} {verb}{_for_others(observed)}"
    return Note(reason, message, jobs=_beneficiaries(observed))


def _beneficiaries(observed: Observed) -> tuple[str, ...]:
    """The jobs that get the places of this one's tasks."""
    job = observed.job
    return () if job.spec.suspend else job.status.allocation.beneficiaries


def _for_others(observed: Observed) -> str:
    names = _beneficiaries(observed)
    return f" for {', '.join(names)}" if names else ""


def _moved(place: Placement | None, node: str) -> bool:
    return place is None or place.node != node


def _other_devices(observed: Observed, draft: StatusDraft, wanted: dict[Slot, Placement]) -> list[Slot]:
    return [
        slot
        for task in observed.tasks
        if task.phase != "Ended"
        and (slot := (task.spec.role, task.spec.index)) in wanted
        and task.spec.incarnation == draft.current(slot)
        and task.spec.placement.devices != wanted[slot].devices
    ]


def _missing_starts(
    observed: Observed, draft: StatusDraft, wanted: dict[Slot, Placement], now: float
) -> tuple[list[Action], float | None]:
    """What brings the wanted slots closer to running, each member given its node in the draft; and the
    seconds until a backoff ends.

    Slots without an admitted task are ensured; once the endpoints of all that start together are known,
    their tasks are bootstrapped. Both are idempotent by task name and repeated until they are observed.
    """
    if _refused(observed, draft) or not wanted:
        return [], None
    gang = restart_scope(observed.job.spec) == "Gang"
    fresh = fixed_membership(observed.job) and not _launched(observed, draft)
    find = _gang if fresh or gang else _single
    ready = find(observed, draft, wanted)
    delayed = {
        slot: wait
        for slot in ready
        if draft.current(slot) > 1
        and slot not in draft.nodes
        and (wait := (draft.restart_after if gang else draft.retry_after.get(slot, 0.0)) - now) > 0
    }
    ready = [slot for slot in ready if slot not in delayed]
    again = min(delayed.values()) if delayed else None
    if not gang:
        draft.restart_after = now + again if again is not None else 0.0
    if not ready or (delayed and gang):
        return [], again
    draft.attempt = _attempt(observed, draft)
    for slot in ready:
        draft.nodes[slot] = wanted[slot].node
        draft.retry_after.pop(slot, None)
    return _start_actions(observed, draft, wanted, ready), again


def _start_actions(
    observed: Observed, draft: StatusDraft, wanted: dict[Slot, Placement], ready: list[Slot]
) -> list[Action]:
    tasks = {slot_of(t): t for t in observed.tasks if t.spec.incarnation == draft.current(slot_of(t))}
    admitted = [tasks[slot] for slot in ready if slot in tasks and tasks[slot].endpoint is not None]
    together = observed.job.spec.array is None
    missing = [slot for slot in ready if slot not in tasks or tasks[slot].phase == "Pending"]
    actions: list[Action] = []
    if missing:
        group = ready if together else missing
        specs = tuple(_spec(observed, draft, slot, wanted[slot]) for slot in group)
        actions.append(Ensure(specs, together))
    if admitted and (len(admitted) == len(ready) or not together):
        actions.append(Bootstrap(tuple(admitted)))
    return actions


def _attempt(observed: Observed, draft: StatusDraft) -> int:
    """The number of this start's attempt. Elastic jobs count on when nothing of them was left: what is
    on its way out belongs to the attempt before, and speaks for it until something new starts."""
    begun = bool(draft.attempt) and observed.job.spec.runtime == "elastic" and not draft.members()
    return draft.attempt + 1 if begun else max(draft.attempt, 1)


def _gang(observed: Observed, draft: StatusDraft, wanted: dict[Slot, Placement]) -> list[Slot]:
    """All wanted slots or none; none while anything of an older attempt is left."""
    if _stale_slots(observed, draft, wanted) or any(
        not _answers(observed, p.node) for p in wanted.values()
    ):
        return []
    return [] if _launched(observed, draft) >= wanted.keys() else sorted(wanted)


def _single(observed: Observed, draft: StatusDraft, wanted: dict[Slot, Placement]) -> list[Slot]:
    """Wanted slots on nodes that answer, with neither a task of their own nor an older one there."""
    busy = _launched(observed, draft) | _stale_slots(observed, draft, wanted)
    return [
        slot
        for slot, place in sorted(wanted.items())
        if slot not in busy
        and _answers(observed, place.node)
        and not observed.unknown(draft.nodes.get(slot, place.node))
    ]


def _answers(observed: Observed, node: str) -> bool:
    return node not in observed.unreachable and node not in observed.lost


def _launched(observed: Observed, draft: StatusDraft) -> set[Slot]:
    """Slots with a current incarnation that runs, is about to, or has an end that is not counted yet."""
    return {
        slot
        for task in observed.tasks
        if (task.bootstrapped or task.phase not in ("Pending", "Admitted"))
        and task.spec.incarnation == draft.current(slot := (task.spec.role, task.spec.index))
        and slot not in draft.outcomes
    }


def _stale_slots(observed: Observed, draft: StatusDraft, wanted: dict[Slot, Placement]) -> set[Slot]:
    return {
        slot
        for task in observed.tasks
        if task.phase != "Ended"
        and (
            (slot := (task.spec.role, task.spec.index)) not in wanted
            or task.spec.incarnation != draft.current(slot)
        )
    }


def _refused(observed: Observed, draft: StatusDraft) -> bool:
    refusal = draft.refusal
    return refusal is not None and refusal.allocation == observed.job.status.allocation.id


def _spec(observed: Observed, draft: StatusDraft, slot: Slot, place: Placement) -> TaskSpec:
    job, incarnation = observed.job, draft.current(slot)
    role = next((role for role in job.spec.roles if role.name == slot[0]), Role())
    return TaskSpec(
        namespace=job.metadata.namespace,
        name=task_name(job.metadata.name, job.metadata.uid, slot[0], slot[1], incarnation),
        job=job.metadata.name,
        job_uid=job.metadata.uid,
        role=slot[0],
        index=slot[1],
        attempt=draft.attempt,
        incarnation=incarnation,
        placement=place,
        command=(*role.command, *role.args),
        env=role.env,
        working_directory=role.working_directory,
        cpu=role.resources.cpu,
        cpu_limit=role.resources.cpu_limit,
        memory=role.resources.memory,
        ports={port.name: port.port for port in role.ports},
        isolation=job.spec.isolation,
        image=role.image,
        template=role.template,
        readiness=role.readiness,
        volumes=role.volumes,
    )


def _describe_phase(
    observed: Observed, draft: StatusDraft, wanted: dict[Slot, Placement], now: float
) -> None:
    """Write phase, running counts and conditions of an undecided job into the draft."""
    running = [
        (task.spec.role, task.spec.index)
        for task in observed.tasks
        if task.phase in ("Running", "Terminating")
    ]
    for slot in running:
        draft.running[slot[0]] = draft.running.get(slot[0], 0) + 1
    starts = [task.started for task in observed.tasks if task.started]
    if starts and not draft.started:
        # nodes stamp with clocks of their own
        draft.started = min(now, max(observed.job.metadata.created, min(starts)))
    if draft.finished:
        return
    live = [task for task in observed.tasks if task.phase != "Ended"]
    draft.phase, draft.reason, draft.message = _phase(observed, draft, wanted, set(running), bool(live))
    _conditions(observed, draft, wanted, now)


def _phase(
    observed: Observed, draft: StatusDraft, wanted: dict[Slot, Placement], running: set[Slot], live: bool
) -> tuple[Phase, str, str]:  # fmt: skip
    spec = observed.job.spec
    unreachable = draft.waits_for(observed)
    said = f"node {unreachable} does not answer; if it is gone for good: shoal lost node/{unreachable}"
    if spec.suspend and not live and not unreachable:
        return "Suspended", "Suspended", "shoal resume lets it go on"
    before = observed.job.status.phase
    if live or unreachable:
        all_run = bool(wanted) and running >= wanted.keys()
        at_work = any(not is_coordinator(spec, role) for role, _ in running)
        leaves = bool(running) and (spec.suspend or spec.cancelled or observed.deleted)
        goes_on = (
            all_run or (before == "Running" and (at_work or leaves)) or (at_work and _apart(observed))
        )
        phase: Phase = "Running" if goes_on else "Starting"
        return phase, "WaitingForNode" if unreachable else "", said if unreachable else ""
    if wanted:
        return "Starting", "", ""
    waits = "" if draft.eligible else waiting_message(spec.after, draft.dependencies_met)
    return "Pending", "Dependency" if waits else "", waits


def _apart(observed: Observed) -> bool:
    return observed.job.spec.array is not None


def _conditions(
    observed: Observed, draft: StatusDraft, wanted: dict[Slot, Placement], now: float
) -> None:
    stale = [
        task
        for task in observed.tasks
        if task.phase != "Ended"
        and task.spec.incarnation != draft.current((task.spec.role, task.spec.index))
    ]
    preempting = bool(stale) and not wanted and not observed.job.spec.suspend
    resizing = bool(stale) and bool(wanted)
    restarting = bool(wanted) and not wanted.keys() <= draft.members().keys() and draft.attempt > 0
    reason = observed.job.status.allocation.reason or "Stopping"
    others = _for_others(observed)
    message = f"its places are taken{others}" if others else ""
    draft.condition(
        "Preempting", preempting, reason if preempting else "", message if preempting else "", now
    )
    draft.condition(
        "Resizing", resizing, "MembersChange" if resizing else "", message if resizing else "", now
    )
    draft.condition("Restarting", restarting, "Backoff" if restarting else "", "", now)
