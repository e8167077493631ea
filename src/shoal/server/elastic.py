"""What an elastic job's own tasks may ask of the platform: their record, their size, and reports.

The record is kept beside the Job as an object of its own (`shoal.objects.membership`), so that it costs
no watcher of jobs anything and survives whatever the store survives. Writes compare and set: the version
that a caller gives back is the one that it read. A task of an earlier attempt is refused everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Request, Response

from shoal.clock import Clock
from shoal.history.recorder import Recorder, about
from shoal.objects import codec
from shoal.objects.elastic import elastic_role
from shoal.objects.errors import Conflict, Exists, Invalid, NotFound
from shoal.objects.job import ElasticStatus, Job, Recovery, WorldSize
from shoal.objects.job_kind import scaled
from shoal.objects.kinds import JOB
from shoal.objects.membership import LARGEST_RECORD, Membership, MembershipSpec
from shoal.objects.meta import Metadata, OwnerReference, Stamp
from shoal.objects.ranges import IndexSet
from shoal.server.auth import job_actor
from shoal.server.services import ServicesNow, authenticator_of, counted, identify
from shoal.store.base import SYSTEM, Store

WRITER = "elastic"
_MOST_ATTEMPTS = 10
_SIZE_ANNOTATION = "shoal.dev/resized"
"""`MOST/SIZE`: the most that users asked for, and the size that the job has set itself."""
KEPT_RECOVERIES = 8
KEPT_SIZES = 48
"""Changes of size that the status keeps; history has the older ones."""

_QUIET_SECONDS = 5.0
"""Numbers alone are written no more often."""
_LONGEST_MESSAGE = 1000

Natural = Annotated[int, msgspec.Meta(ge=0)]
Span = Annotated[float, msgspec.Meta(ge=0)]
router = APIRouter(prefix="/api/v1/elastic", tags=["elastic"], default_response_class=Response)


class ElasticCaller(msgspec.Struct, frozen=True):
    """A task that calls: its job as it is now, and the attempt that it was started in."""

    job: Job
    attempt: int


class Wanted(msgspec.Struct, frozen=True):
    """The answer to a poll."""

    version: str
    """Of the record; empty while there is none."""
    record: str | None
    target: int | None
    """Members to expect: tasks that have their slots or still run; None: there are none yet. The
    platform itself ends those that lose their slots, with notice."""
    minimum: int
    maximum: int


class ElasticJobs:
    """See the module's docstring. Thread-safe; every call may wait for the store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def read(self, caller: ElasticCaller) -> Wanted:
        """The record and what is wanted.

        Raises:
            Conflict: the caller is of an earlier attempt.
            NotFound: its job is not elastic.
        """
        there = self._checked(caller)
        role = elastic_role(caller.job.spec)
        return Wanted(
            version=there.metadata.resource_version if there is not None else "",
            record=there.spec.record if there is not None else None,
            target=_target(caller.job, role.name),
            minimum=role.min_replicas or role.replicas,
            maximum=role.replicas,
        )

    def write(self, caller: ElasticCaller, version: str, record: str) -> str:
        """Set the record if it still has that version; durable when this returns. The new version.

        Raises:
            Conflict: it has another version, or the caller is of an earlier attempt.
            Invalid: the record is too long.
            NotFound: its job is not elastic.
        """
        size = len(record.encode())
        if size > LARGEST_RECORD:
            raise Invalid(f"a record has at most {LARGEST_RECORD} bytes; found {size}")
        there = self._checked(caller)
        if version != (there.metadata.resource_version if there is not None else ""):
            raise Conflict("the record has been written since it was read", hint="read it again")
        meta = caller.job.metadata
        spec = MembershipSpec(job_uid=meta.uid, attempt=caller.attempt, record=record)
        if there is not None:
            made = self._store.update(msgspec.structs.replace(there, spec=spec), actor=SYSTEM)
            return made.metadata.resource_version
        owner = OwnerReference(kind=JOB.name, name=meta.name, uid=meta.uid)
        metadata = Metadata(name=meta.name, namespace=meta.namespace, owners=(owner,))
        try:
            made = self._store.create(Membership(metadata=metadata, spec=spec), actor=SYSTEM)
        except Exists as error:
            raise Conflict("another has written the first record", hint="read it") from error
        return made.metadata.resource_version

    def report(self, caller: ElasticCaller, report: Report, recorder: Recorder) -> None:
        """Take in what the job says of itself: a summary in its status, all of it in history.

        Raises:
            Conflict: the caller is of an earlier attempt.
            NotFound: its job is not elastic, or gone.
        """
        _check_attempt(caller)
        job = caller.job
        for _ in range(_MOST_ATTEMPTS):
            news = news_of(job.status.elastic, report, caller.attempt, self._clock.now())
            if news is None:
                return
            meta = job.metadata
            try:
                self._store.patch_status(
                    JOB,
                    meta.namespace,
                    meta.name,
                    actor=SYSTEM,
                    writer=WRITER,
                    uid=meta.uid,
                    counter=job.status.writers.get(WRITER, 0),
                    fields={"elastic": codec.builtins(news.status)},
                )
            except Conflict:
                job = self._store.get(Job, meta.namespace, meta.name, actor=SYSTEM)
                continue
            _record(recorder, job, news)
            return
        raise Conflict(f"the reports of job {job.metadata.name} come faster than they can be kept")

    def resize(self, caller: ElasticCaller, replicas: int) -> tuple[Job, Job]:
        """Ask for another number of members, as `shoal scale --max` does, but for no more than users
        asked for. The job before and after.

        Raises:
            Conflict: the caller is of an earlier attempt, or others changed the job again and again.
            Invalid: fewer than the job's minimum, or more than users asked for.
            NotFound: its job is not elastic, or gone.
        """
        _check_attempt(caller)
        job = caller.job
        for _ in range(_MOST_ATTEMPTS):
            role = elastic_role(job.spec)
            least, most = role.min_replicas or 1, _asked_by_users(job)
            if replicas < least:
                raise Invalid(f"the job runs with at least {least} tasks of role {role.name}")
            if replicas > most:
                raise Invalid(
                    f"the job may have at most {most} tasks of role {role.name}, as its submitter asked",
                    hint=f"a user can raise it: shoal scale job/{job.metadata.name} --max {replicas}",
                )
            try:
                wanted = _noting_size(scaled(job, replicas, role=role.name), most, replicas)
                return job, self._store.update(wanted, actor=SYSTEM)
            except Conflict:
                meta = job.metadata
                job = self._store.get(Job, meta.namespace, meta.name, actor=SYSTEM)
        raise Conflict(f"job {job.metadata.name} is being changed by others", hint="try again")

    def _checked(self, caller: ElasticCaller) -> Membership | None:
        _check_attempt(caller)
        meta = caller.job.metadata
        try:
            there = self._store.get(Membership, meta.namespace, meta.name, actor=SYSTEM)
        except NotFound:
            return None
        if there.spec.attempt > caller.attempt:
            raise _too_old(caller, there.spec.attempt)
        return there


def _asked_by_users(job: Job) -> int:
    """The largest size that users asked for. A resize by the job itself leaves it in an annotation, with
    the size that it set; once a user has set another, that one counts."""
    now = elastic_role(job.spec).replicas
    most, _, own = job.metadata.annotations.get(_SIZE_ANNOTATION, "").partition("/")
    return int(most) if most.isdecimal() and own == str(now) else now


def _noting_size(job: Job, most: int, own: int) -> Job:
    annotations = {**job.metadata.annotations, _SIZE_ANNOTATION: f"{most}/{own}"}
    metadata = msgspec.structs.replace(job.metadata, annotations=annotations)
    return msgspec.structs.replace(job, metadata=metadata)


def _record(recorder: Recorder, job: Job, news: News) -> None:
    subject, status = about(job), news.status
    at = status.reported
    if news.resized:
        recorder.metric(subject, "world_size", status.world, at=at)
    if status.goodput is not None:
        recorder.metric(subject, "goodput_ratio", status.goodput, at=at)
    if status.step_seconds is not None:
        recorder.metric(subject, "step_seconds", status.step_seconds, at=at)
    for each, cause in zip(news.recoveries, news.causes, strict=True):
        labels = {"how": each.how, "epoch": str(each.epoch)}
        recorder.metric(subject, "recovery_seconds", each.seconds, at=each.at, labels=labels)
        said = ", ".join(filter(None, (cause, each.how, f"{each.world} members")))
        message = f"training went on after {each.seconds:.3f} s ({said}, epoch {each.epoch})"
        recorder.event(subject, "Recovered", message)
    if news.recoveries:
        recorder.metric(subject, "lost_steps_total", status.lost_steps, at=at)
    if news.state_changed:
        reason = status.state[:1].upper() + status.state[1:]
        bad = status.state in ("paused", "failed")
        recorder.event(
            subject,
            f"Training{reason}",
            status.message or f"the job says that it is {status.state}",
            severity="Warning" if bad else "Normal",
        )
    elif news.new_message:
        recorder.event(subject, "MembersChange", status.message)


def _check_attempt(caller: ElasticCaller) -> None:
    job = caller.job
    if job.spec.runtime != "elastic":
        raise NotFound(f"job {job.metadata.name} is not elastic: its runtime is {job.spec.runtime}")
    if caller.attempt < job.status.attempt:
        raise _too_old(caller, job.status.attempt)


def _too_old(caller: ElasticCaller, now: int) -> Conflict:
    return Conflict(f"the caller is of attempt {caller.attempt}, and the job is in attempt {now}")


def _target(job: Job, role: str) -> int | None:
    slots = [each for each in job.status.allocation.slots if each.role == role]
    given = sum(len(IndexSet.parse(each.indices)) for each in slots)
    running = next((each.running for each in job.status.roles if each.name == role), 0)
    return max(given, running) or None


class ReportedRecovery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One recovery as it is reported. `at` is a stamp, 0: now; `epoch` identifies it."""

    seconds: Span
    at: Stamp = 0.0
    epoch: Natural = 0
    how: Annotated[str, msgspec.Meta(max_length=64)] = ""
    lost_steps: Natural = 0
    world: Natural = 0
    lost: Annotated[tuple[str, ...], msgspec.Meta(max_length=1000)] = ()
    """The members that were lost, and why, in words."""


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a coordinator reports now and then. Unknown fields are ignored: it may be newer."""

    world: Natural = 0
    step: Natural = 0
    goodput: Span | None = None
    step_seconds: Span | None = None
    recoveries: Annotated[tuple[ReportedRecovery, ...], msgspec.Meta(max_length=1000)] = ()
    """The newest ones, reported before or not."""
    state: Annotated[str, msgspec.Meta(max_length=64)] = ""
    message: str = ""
    """What has just happened; empty: nothing new."""


@dataclass(frozen=True)
class News:
    """The new status, and what of it is new."""

    status: ElasticStatus
    recoveries: tuple[Recovery, ...] = ()
    causes: tuple[str, ...] = ()
    """Of each of the recoveries, the members that were lost and why, in words."""
    resized: bool = False
    state_changed: bool = False
    new_message: bool = False
    """It has said something new."""


def news_of(known: ElasticStatus | None, report: Report, attempt: int, now: Stamp) -> News | None:
    """What a report adds to what is known; None when it is not worth a write yet."""
    old = known or ElasticStatus()
    reported = [each for each in report.recoveries if _is_fresh(old, each, attempt)]
    fresh = tuple(
        Recovery(
            at=each.at or now,
            epoch=each.epoch,
            how=each.how,
            seconds=each.seconds,
            lost_steps=each.lost_steps,
            world=each.world,
        )
        for each in reported
    )
    goes_on = (report.state, attempt) == (old.state, old.attempt)
    message = report.message[:_LONGEST_MESSAGE] or (old.message if goes_on else "")
    resized = known is None or report.world != old.world
    said = not goes_on or message != old.message
    if not (fresh or resized or said) and 0 <= now - old.reported < _QUIET_SECONDS:
        return None
    sizes = (*old.sizes, WorldSize(at=now, size=report.world)) if resized else old.sizes
    status = ElasticStatus(
        attempt=attempt,
        state=report.state,
        message=message,
        world=report.world,
        step=report.step,
        goodput=report.goodput,
        step_seconds=report.step_seconds,
        recoveries=old.recoveries + len(fresh),
        recovery_seconds=old.recovery_seconds + sum(each.seconds for each in fresh),
        lost_steps=old.lost_steps + sum(each.lost_steps for each in fresh),
        last_recoveries=(*old.last_recoveries, *fresh)[-KEPT_RECOVERIES:],
        sizes=sizes[-KEPT_SIZES:],
        reported=now,
    )
    return News(
        status,
        recoveries=fresh,
        causes=tuple(", ".join(each.lost)[:_LONGEST_MESSAGE] for each in reported),
        resized=resized,
        state_changed=report.state != old.state,
        new_message=bool(message) and message != old.message,
    )


def _is_fresh(old: ElasticStatus, recovery: ReportedRecovery, attempt: int) -> bool:
    if attempt != old.attempt or not old.last_recoveries:
        return True
    return recovery.epoch > old.last_recoveries[-1].epoch


class _Record(msgspec.Struct, frozen=True):
    version: str
    record: str


class _Resize(msgspec.Struct, frozen=True):
    replicas: Annotated[int, msgspec.Meta(ge=1, le=100_000)]


async def _caller(request: Request, services: ServicesNow) -> ElasticCaller:
    with counted(request):
        job, attempt = await authenticator_of(services).task(request.headers.get("authorization", ""))
    identify(request, f"job:{'/'.join(job.key)}")
    return ElasticCaller(job, attempt)


CallerNow = Annotated[ElasticCaller, Depends(_caller)]


@router.get("", operation_id="elastic")
async def read(services: ServicesNow, caller: CallerNow) -> Response:
    """The caller's job: its record with the version that a write must name, how many members to expect
    (null: none yet), and how few and how many there may be."""
    wanted = await services.on_store.call(_jobs(services).read, caller)
    return _json(wanted)


@router.put("", operation_id="putElastic")
async def write(request: Request, services: ServicesNow, caller: CallerNow) -> Response:
    """Set the record, `{version, record}`, if it still has that version (empty: there is none yet). 409:
    it has another, or the caller is of an earlier attempt. On disk when this answers."""
    asked = codec.from_body(await request.body(), _Record, "a record")
    version = await services.on_store.call(_jobs(services).write, caller, asked.version, asked.record)
    return _json({"version": version})


@router.post("/report", operation_id="reportElastic")
async def report(request: Request, services: ServicesNow, caller: CallerNow) -> Response:
    """How the job does: `{world, step, goodput, stepSeconds, recoveries, state, message}`."""
    reported = codec.from_body(await request.body(), Report, "a report")
    await services.on_store.call(_jobs(services).report, caller, reported, services.recorder)
    return _json({})


@router.post("/resize", operation_id="resizeElastic")
async def resize(request: Request, services: ServicesNow, caller: CallerNow) -> Response:
    """Ask for another number of members: `{replicas}`, at most as many as users asked for. The scheduler
    gives and takes them."""
    asked = codec.from_body(await request.body(), _Resize, "a size")
    before, after = await services.on_store.call(_jobs(services).resize, caller, asked.replicas)
    services.audit.audited("resize", job_actor(after), before, after)
    return _json({})


def _jobs(services: ServicesNow) -> ElasticJobs:
    return ElasticJobs(services.store, services.clock)


def _json(document: object) -> Response:
    return Response(msgspec.json.encode(document), media_type="application/json")
