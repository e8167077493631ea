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
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Literal, NamedTuple, Self

from shoal.cli.exit_codes import process_code, sentence
from shoal.cli.failures import INTERRUPTED, JobNotFound
from shoal.cli.launch.narrator import Narrator
from shoal.cli.lines import TaskLines
from shoal.cli.settings import Settings
from shoal.client import Client, Entry, Watch
from shoal.objects.errors import Expired, NotFound, ShoalError, Unavailable
from shoal.objects.job import FINISHED, Job
from shoal.objects.kinds import JOB

_BROKEN_PIPE = 141
_LOGS_MAY_LAG_SECONDS = 10.0
_LOGS_MAY_START_SECONDS = 30.0
_CANCEL_MAY_TAKE_SECONDS = 10.0


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
