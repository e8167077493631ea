"""Following a job to its end: its output on stdout, what it waits for on stderr, then its exit code.

Three things speak, each from a thread of its own: the watch of the job, the stream of its logs, and
Ctrl-C. All of them only put an event into one queue; this thread alone decides.

1. The job's state is reported when it changes what a person would do: what it waits for, a restart, a
   suspension.
2. The first Ctrl-C edits the job's spec (`cancelled`) and following goes on until it has ended. The
   second leaves at once with 130; the cancel goes on without us.
3. When the job has finished, the log stream ends by itself; it is given some seconds for that.
4. When stdout has no reader any more (`shoal run ... | head`) the job is cancelled, as a shell would end
   a command there.

`Narrator` says the job's state as lines on stderr: reasons to wait, failures, and lost workers, each
once, however often the job is written. What happened to a task (which one ended, why, and how many
restarts are used) is in the job's events, so a change of the job's counters or conditions makes the
narrator read the events that are new. They are recorded a moment after the status is written, so it
looks again for a short while, and says what the status alone shows when no event comes."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from shoal.cli import output
from shoal.cli.failures import INTERRUPTED, JobNotFound, process_code, sentence
from shoal.cli.lines import TaskLines
from shoal.cli.settings import Settings
from shoal.client import Client, Entry, Watch
from shoal.objects.errors import Expired, NotFound, ShoalError, Unavailable
from shoal.objects.job import FINISHED, Job
from shoal.objects.kinds import JOB
from shoal.objects.text import duration, plural

if TYPE_CHECKING:
    from shoal.client import Entry

_BROKEN_PIPE = 141
_LOGS_MAY_LAG_SECONDS = 10.0
_LOGS_MAY_START_SECONDS = 30.0
_CANCEL_MAY_TAKE_SECONDS = 10.0
_PATIENCE_SECONDS = 0.5
_STUCK_SECONDS = 10.0
_JOIN_SECONDS = 30.0
_EVENTS_EACH_SECONDS = 0.2
_EVENTS_WITHIN_SECONDS = 2.0
_CHANGES = {
    "Preempting": "its tasks are being stopped, to free their resources",
    "Resizing": "its number of tasks changes",
    "Restarting": "",
}
_NORMAL_EVENTS = ("Preempted", "Shrunk", "Moved", "Resized", "NodeDrained", "FailureIgnored")
"""Events worth a line, as warnings are."""


class _Event(NamedTuple):
    what: Literal["job", "logs ended", "logs failed", "interrupt", "cancel failed"]
    error: Exception | None = None


def follow(
    client: Client, settings: Settings, create: Callable[[], Job], *, prefixed: bool, raw: bool = False
) -> int:
    """Create the job, follow it, and return the exit code of `shoal run`. A Ctrl-C while it is being
    created cancels it too.

    Raises:
        ShoalError: it cannot be created, the server was lost for good, or the job was deleted.
    """
    events: SimpleQueue[_Event] = SimpleQueue()
    with Interrupts(lambda: events.put(_Event("interrupt"))) as interrupts:
        job = create()
        lines = TaskLines(prefixed=prefixed, raw=raw)
        return _Follower(client, settings, job, lines, events, interrupts).run()


class _Follower:
    def __init__(
        self,
        client: Client,
        settings: Settings,
        job: Job,
        lines: TaskLines,
        events: SimpleQueue[_Event],
        interrupts: Interrupts,
    ) -> None:
        self._client = client
        self._settings = settings
        self._job = job
        self._name = f"job/{job.metadata.name}"
        self._lines = lines
        self._events = events
        self._interrupts = interrupts
        self._narrator = Narrator(settings, self._name, say=lines.say, events=self._new_events)
        self._cancelling: threading.Thread | None = None
        self._cancelled = False
        self._seen = False
        """Whether the present watch has shown the job."""
        self._logs_over = False
        self._pipe_broken = False

    def run(self) -> int:
        watch = self._watch()
        threading.Thread(target=self._read_logs, name="logs", daemon=True).start()
        deadline = math.inf
        try:
            while not (self._finished and self._logs_over) and time.monotonic() < deadline:
                event = self._next(deadline)
                self._narrator.speak()
                if event is None:
                    continue
                if event.what == "job":
                    watch = self._look(watch)
                    if self._finished and deadline == math.inf:
                        deadline = time.monotonic() + _LOGS_MAY_LAG_SECONDS
                elif event.what == "interrupt":
                    self._interrupts.taken()
                    if self._cancelling is not None:
                        return self._leave(self._cancelling)
                    self._cancel("cancelling", "press Ctrl-C again to leave while that goes on")
                elif event.what == "cancel failed":
                    self._lines.say(f"it could not be cancelled: {event.error}")
                else:
                    self._logs_stopped(event.error)
        finally:
            watch.close()
        return self._end()

    @property
    def _finished(self) -> bool:
        return self._job.status.phase in FINISHED

    def _next(self, deadline: float) -> _Event | None:
        seconds = min(max(0.0, deadline - time.monotonic()), self._narrator.seconds_left())
        left = None if math.isinf(seconds) else seconds
        try:
            return self._events.get(timeout=left)
        except Empty:
            return None

    def _watch(self) -> Watch:
        metadata = self._job.metadata
        self._seen = False
        watch = self._client.watch_object(JOB, metadata.namespace, metadata.name)
        watch.on_ready(lambda: self._events.put(_Event("job")))
        return watch

    def _look(self, watch: Watch) -> Watch:
        """Take what the watch has; a watch that fell behind begins anew."""
        try:
            changes = watch.poll()
        except Expired:
            watch.close()
            return self._watch()
        for change in changes:
            job: Any = change.record.object if change.record is not None else None
            same = job is not None and job.metadata.uid == self._job.metadata.uid
            if change.type == "Deleted" or (not same and (job is not None or not self._seen)):
                # a bookmark before the object itself: there was nothing to begin with
                raise JobNotFound(f"{self._name} was deleted while it was being followed")
            if job is not None:
                self._seen = True
                self._narrator.observe(job)
                self._job = job
        return watch

    def _new_events(self, after: str) -> tuple[Entry, ...]:
        metadata = self._job.metadata
        try:
            return self._client.events(
                namespace=metadata.namespace, kind=JOB, name=metadata.name, uid=metadata.uid, after=after
            )
        except ShoalError:
            return ()  # the server is away, or the entry is gone: the status alone is reported

    def _cancel(self, doing: str, hint: str) -> None:
        """In a thread, so that a slow server does not keep the second Ctrl-C waiting."""
        if self._finished:
            return
        self._lines.say(f"{doing} {self._name}; {hint}")

        def cancel() -> None:
            try:
                self._client.cancel(self._job.metadata.namespace, self._job.metadata.name)
                self._cancelled = True
            except ShoalError as error:
                self._events.put(_Event("cancel failed", error))

        self._cancelling = threading.Thread(target=cancel, name="cancel", daemon=True)
        self._cancelling.start()

    def _leave(self, cancelling: threading.Thread) -> int:
        """The second Ctrl-C: make sure that the first one's cancel has been sent, and go."""
        cancelling.join(_CANCEL_MAY_TAKE_SECONDS)
        state = "is being cancelled" if self._cancelled else "was not cancelled, and goes on"
        self._lines.say(f"{self._name} {state}; see {self._again('get')}")
        return INTERRUPTED

    def _read_logs(self) -> None:
        try:
            self._pass_on_logs()
        except Exception as error:  # noqa: BLE001  carried to the thread that decides
            self._events.put(_Event("logs failed", error))
        else:
            self._events.put(_Event("logs ended"))

    def _pass_on_logs(self) -> None:
        """A server that has just been started serves logs a little later than objects."""
        metadata = self._job.metadata
        deadline = time.monotonic() + _LOGS_MAY_START_SECONDS
        while True:
            try:
                records = self._client.logs(metadata.namespace, metadata.name, follow=True)
                break
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        for record in records:
            self._lines.write(record)
        self._lines.finish()

    def _logs_stopped(self, error: Exception | None) -> None:
        self._logs_over = True
        if isinstance(error, BrokenPipeError):
            self._pipe_broken = True
            self._cancel("the reader of the output has gone: cancelling", "it ends by itself")
        elif error is not None and not isinstance(error, NotFound):  # the watch reports that
            self._lines.say(f"its output cannot be shown: {error}")

    def _end(self) -> int:
        self._narrator.end(self._job)
        self._lines.say(f"{self._name} {sentence(self._job, time.time())}")
        if not self._logs_over:
            self._lines.say(f"there may be more output: {self._again('logs')}")
        return _BROKEN_PIPE if self._pipe_broken else process_code(self._job)

    def _again(self, verb: str) -> str:
        return self._settings.spelt(f"{verb} {self._name}")


class Interrupts:
    """While entered, SIGINT calls a function (from a signal handler: it must not block). The receiver
    calls `taken`; a second SIGINT before that raises KeyboardInterrupt: the receiver is stuck."""

    def __init__(self, interrupted: Callable[[], None]) -> None:
        self._interrupted = interrupted
        self._untaken = 0
        self._before: Any = None

    def taken(self) -> None:
        """The last one was noticed."""
        self._untaken = 0

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self._untaken += 1
        if self._untaken > 1:
            raise KeyboardInterrupt
        self._interrupted()


def no_events(_after: str) -> Sequence[Entry]:
    """For a job without readable events."""
    return ()


class Narrator:
    """Says changes of one job. A reason to wait is said once it has held for a moment: on its way to
    its nodes every job waits a little. `events` gives the job's events after one's id."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        *,
        say: Callable[[str], None] = output.say,
        events: Callable[[str], Sequence[Entry]] = no_events,
    ) -> None:
        self._settings = settings
        self._name = name
        self._say = say
        self._events = events
        self._last_event = ""
        self._fallback = ""
        """What is said of a change when no event comes."""
        self._look_at = math.inf
        self._look_until = 0.0
        self._waiting = ""
        self._said = ""
        self._say_at = math.inf
        self._stuck_at = math.inf
        self._join_by = math.inf
        self._joined = False
        self._warned = False
        self._phase = ""
        self._failures = (0, 0)
        self._conditions: dict[str, float] = {}
        self._suspended = False

    def seconds_left(self) -> float:
        """How long until `speak` will have something to say, as far as is known."""
        due = min(self._say_at, self._stuck_at, self._look_at, self._join_by)
        return max(0.0, due - time.monotonic())

    def speak(self) -> None:
        """Say what has become due."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_for_events(now)
        if now >= self._say_at:
            self._say_at = math.inf
            self._said = self._waiting
            self._say(f"{self._name} waits: {self._waiting}")
        if now >= self._stuck_at:
            self._stuck_at = math.inf
            look = " and ".join(self._settings.spelt(w) for w in (f"explain {self._name}", "doctor"))
            self._say(f"{self._name} makes no progress towards its start; see {look}")
        if now >= self._join_by:
            self._warn_of_copies()

    def observe(self, job: Job) -> None:
        """Look at the job's newest state."""
        self._look_at_reason(job)
        if job.status.phase != self._phase or self._waiting:
            self._phase = job.status.phase
            unexplained = self._phase in ("Pending", "Starting") and not self._waiting
            self._stuck_at = time.monotonic() + _STUCK_SECONDS if unexplained else math.inf
        suspended = job.status.phase == "Suspended"
        if suspended and not self._suspended:
            again = self._settings.spelt(f"resume {self._name}")
            self._say(f"{self._name} is suspended; continue it with: {again}")
        self._suspended = suspended
        self._look_at_members(job)
        self._look_at_changes(job)

    def end(self, job: Job) -> None:
        """The job has finished: say what is still due."""
        if self._look_at < math.inf:
            self._look_for_events(self._look_until)
        if job.spec.runtime == "elastic" and job.status.phase == "Succeeded" and not self._joined:
            self._look_at_members(job)
            if not self._joined:
                self._warn_of_copies()

    def _look_at_reason(self, job: Job) -> None:
        scheduling = job.status.scheduling
        reason = scheduling.message or scheduling.code or job.status.message or job.status.reason
        waits = job.status.phase == "Pending" and not job.spec.cancelled
        self._waiting = reason if waits else ""
        if not self._waiting or self._waiting == self._said:
            self._say_at = math.inf
        elif self._say_at == math.inf:
            self._say_at = time.monotonic() + _PATIENCE_SECONDS

    def _look_at_members(self, job: Job) -> None:
        if job.spec.runtime != "elastic" or self._joined:
            return
        reported = job.status.elastic
        self._joined = reported is not None and (
            reported.world > 0 or any(each.size for each in reported.sizes)
        )
        if self._joined:
            self._join_by = math.inf
        elif job.status.phase == "Running" and self._join_by == math.inf and not self._warned:
            self._join_by = time.monotonic() + _JOIN_SECONDS

    def _warn_of_copies(self) -> None:
        self._join_by = math.inf
        if self._warned:
            return
        self._warned = True
        self._say(
            f"warning: no worker of {self._name} has joined the training. A script that does not call "
            "shoal.elastic.init() runs as independent copies, each over all of the data; "
            "--workers N without --min and --max gives it torchrun's environment instead"
        )

    def _look_at_changes(self, job: Job) -> None:
        """Note new failures and conditions; their events say what happened."""
        status = job.status
        for condition in status.conditions:
            change = _CHANGES.get(condition.type)
            if change is None or condition.status != "True":
                continue
            if self._conditions.get(condition.type) != condition.changed:
                self._conditions[condition.type] = condition.changed
                self._expect_events(change or _restart(job))
        failures = (status.failures, status.infrastructure_failures)
        if failures > self._failures:
            self._expect_events(_restart(job) if status.restart_after > time.time() else "")
        self._failures = failures

    def _expect_events(self, fallback: str) -> None:
        now = time.monotonic()
        self._fallback = self._fallback or fallback
        self._look_at, self._look_until = now, now + _EVENTS_WITHIN_SECONDS

    def _look_for_events(self, now: float) -> None:
        found = self._events(self._last_event)
        for entry in found:
            self._last_event = entry.id
            if entry.reason in FINISHED:
                continue  # the last line says it
            if entry.severity == "Warning" or entry.reason in _NORMAL_EVENTS:
                self._fallback = ""
                self._say(f"{self._name}: {entry.message}")
        if now < self._look_until:
            self._look_at = now + _EVENTS_EACH_SECONDS
            return
        self._look_at = math.inf
        if self._fallback:
            self._say(f"{self._name}: {self._fallback}")
            self._fallback = ""


def _restart(job: Job) -> str:
    wait = job.status.restart_after - time.time()
    soon = f" in {duration(wait)}" if wait > 0 else ""
    used = f"{job.status.failures} of {plural(job.spec.restart.limit, 'restart')} used"
    return f"tasks that failed start again{soon}; {used}"
