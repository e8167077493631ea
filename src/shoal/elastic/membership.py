"""The membership of this process, and the view that holds; as the coordinator says.

The link's thread writes here what it receives, the training thread reads and waits. The moment a view
after a loss arrives, the group in use is interrupted, so that a thread that waits in a collective wakes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from shoal.elastic.allreduce.groups import Group, Groups
from shoal.elastic.errors import Fenced, Stopped
from shoal.elastic.leaving import leave
from shoal.elastic.link import Contact, Link
from shoal.elastic.view import View
from shoal.elastic.wire import Message

__all__ = ["LEAVE_SECONDS", "Donor", "Membership"]

LEAVE_SECONDS = 3.0
"""So long a worker with a notice waits for a view without it; then it leaves without."""

_TAKE_SECONDS = 0.05
_PATIENCE_SECONDS = 3.0
_EXPLAIN_SECONDS = 30.0
_CLOSE_SECONDS = 5.0
_REPORT_SECONDS = 0.5
_OF_THE_GROUP = ("recovered", "switched")
"""Words about the group in use: the newest counts, and is sent once more at most, since a hello has
most of it."""


@dataclass(frozen=True)
class Donor:
    """Where a joiner takes its state from."""

    name: str
    address: str


class Membership:
    """One process's. `step` and `epoch` are kept current by the training thread, for the hello."""

    def __init__(
        self,
        name: str,
        address: str,
        find: Callable[[], Contact | None],
        say: Callable[[str], None],
    ) -> None:
        """`address`: of its peer server, `host:port`; `say` prints one line for the user."""
        self.name = name
        self.address = address
        self.incarnation = 0
        self.epoch = 0
        self.step = -1
        self.view: View | None = None
        self.plans: dict[int, View] = {}
        self.donor: Donor | None = None
        self.leaving = False
        self.max_stall_seconds = 60.0
        self.on_joined: Callable[[int], None] = lambda incarnation: None
        self._say = say
        self._news = threading.Condition()
        self._fenced = False
        self._fenced_because = ""
        self._unbuilt_at = -_EXPLAIN_SECONDS
        self._known_at = time.monotonic()
        self._explained = ""
        self._explained_at = 0.0
        self._stopped: str | None = None
        self._stopped_well = False
        self._paused: tuple[int, int] | None = None
        self._group: Group | None = None
        self._closing: list[threading.Thread] = []
        self._answers: dict[str, Message] = {}
        self._again: dict[str, Message] = {}
        self._broken = 0
        self._waiting_since: float | None = None
        self._progress: Message = {}
        self._closed = threading.Event()
        self._reporter = threading.Thread(target=self._report, name="shoal-report", daemon=True)
        self.link = Link(find, self._hello, self._hear)
        self.groups = Groups(address.rpartition(":")[0].strip("[]"), self._me, self._post)

    @property
    def key(self) -> str:
        """The job's key, once it is known."""
        return self.link.contact.key if self.link.contact is not None else ""

    @property
    def stopped(self) -> bool:
        """Whether the coordinator has ended the job."""
        return self._stopped is not None

    def start(self) -> None:
        """Begin to look for the coordinator."""
        self.link.start()
        self._reporter.start()

    def send(self, message: Message) -> bool:
        """To the coordinator, if it is there."""
        return self.link.send(message)

    def insist(self, message: Message) -> None:
        """To the coordinator, again each time it is back, until `settle` with its type."""
        kind = str(message["type"])
        with self._news:
            for each in _OF_THE_GROUP if kind in _OF_THE_GROUP else ():
                self._again.pop(each, None)
            self._again[kind] = message
        self.send(message)

    def settle(self, *types: str) -> None:
        """What was insisted on has arrived."""
        with self._news:
            for each in types:
                self._again.pop(each, None)

    def progress(self, fields: Message) -> None:
        """The step, cursor and pace of this worker in the group that it uses, for its reports."""
        self._progress = {"epoch": self.epoch, **fields}

    def waits(self, on: bool) -> None:
        """The training thread waits for other workers from now on, or does not."""
        self._waiting_since = time.monotonic() if on else None

    def broken(self, epoch: int) -> None:
        """Operations of that epoch's group fail: reported until a later group is used."""
        self._broken = epoch
        self.send(self._state())

    def leave(self) -> None:
        """Ask to go at a step boundary. From any thread; not from a signal handler."""
        self.leaving = True
        self.insist({"type": "leaving"})

    # the training thread

    def use(self, group: Group | None) -> None:
        """This group is in use from now on; the one before is let go."""
        with self._news:
            old, self._group = self._group, group
            overtaken = group is not None and self._newer(group.epoch)
            if group is not None:
                self.epoch = group.epoch
                if group.epoch > self._broken:
                    self._broken = 0
        if old is not None and old is not group:
            # its threads are awaited, and its sockets looked up: no step has to wait for that
            closing = threading.Thread(target=old.close, name="shoal-close", daemon=True)
            self._closing = [each for each in self._closing if each.is_alive()] + [closing]
            closing.start()
        if group is not None:
            self.groups.drop(group.epoch)
            self.plans = {e: view for e, view in self.plans.items() if e > group.epoch}
            if overtaken:
                group.interrupt()

    def newer(self, epoch: int) -> bool:
        """Whether a view after a loss has overtaken this epoch; or this process has been put out.

        Raises:
            Stopped: the job has ended.
        """
        with self._news:
            self._check_stopped()
            return self._fenced or self._newer(epoch)

    def next_group(self, after: int) -> Group:
        """Wait for a view newer than `after` that is in force, and its group.

        Raises:
            Fenced: it will be without this process.
            Stopped: the job has ended.
            SystemExit: it has a notice, and no view has come.
        """
        since = time.monotonic()
        while True:
            with self._news:
                self._news.wait_for(
                    lambda: self._fenced or self._stopped is not None or self._newer(after), 0.5
                )
                self._check_stopped()
                if self._fenced:
                    raise Fenced
                view = self.view
            if view is None or view.epoch <= after:
                if not self.leaving:
                    since = time.monotonic()
                elif time.monotonic() - since > LEAVE_SECONDS:
                    self.send({"type": "left", "step": self.step})
                    leave()
                self.explain()
                continue
            self.groups.want(view)
            group = self.groups.take(view.epoch, _TAKE_SECONDS)
            if group is not None:
                return group

    def explain(self) -> None:
        """While this process waits: print what for, at once and every half minute."""
        now = time.monotonic()
        with self._news:
            paused, known = self._paused, self.link.connected and self.incarnation > 0
        if known:
            self._known_at = now
        if known and paused is not None:
            why = f"paused: {paused[0]} of at least {paused[1]} workers are there"
        elif not known and now - self._known_at > _PATIENCE_SECONDS:
            why = f"waiting for the coordinator: {self.link.trouble}"
        else:
            return
        if why != self._explained or now - self._explained_at > _EXPLAIN_SECONDS:
            self._explained, self._explained_at = why, now
            self._say(why)

    def rejoin(self) -> None:
        """Become a new incarnation: whatever this process had is discarded."""
        self._say(f"put out, joins again: {self._fenced_because}")
        self.use(None)
        with self._news:
            self._fenced = False
            self.incarnation, self.epoch, self.step = 0, 0, -1
            self._broken, self._progress = 0, {}
            self.view = self.donor = None
            self.plans = {}
            self._again.clear()
        self.link.again()

    def wait_until(self, condition: Callable[[], bool], timeout_seconds: float) -> bool:
        """Wait for news that make the condition true (it is asked under the lock).

        Raises:
            Fenced: this process has been put out.
            Stopped: the job has ended.
        """
        with self._news:
            held = self._news.wait_for(
                lambda: self._fenced or self._stopped is not None or condition(), timeout_seconds
            )
            self._check_stopped()
            if self._fenced:
                raise Fenced
            return held

    def ready(self) -> int:
        """The newest planned epoch whose group is built here, or that is without this process; or 0."""
        return max(
            (
                epoch
                for epoch, view in self.plans.items()
                if epoch > self.epoch and (self.groups.built(epoch) or not self.includes_me(view))
            ),
            default=0,
        )

    def includes_me(self, view: View | None) -> bool:
        """Whether this incarnation is a member of that view."""
        return view is not None and view.rank_of(self.name, self.incarnation) is not None

    def ask(self, message: Message, answers: tuple[str, ...], timeout_seconds: float) -> Message | None:
        """Send, and wait for one of these answers; None when it does not come in that time."""
        with self._news:
            for each in answers:
                self._answers.pop(each, None)
        self.send(message)
        with self._news:
            self._news.wait_for(lambda: any(a in self._answers for a in answers), timeout_seconds)
            return next((self._answers.pop(a) for a in answers if a in self._answers), None)

    def close(self) -> None:
        """Say nothing more."""
        self._closed.set()
        self.link.close()
        self.use(None)
        for closing in self._closing:
            closing.join(_CLOSE_SECONDS)
        self.groups.close()

    # the reporter's thread

    def _report(self) -> None:
        """Say the state again and again: whatever was lost with a connection is made up for."""
        while not self._closed.wait(_REPORT_SECONDS):
            if self.incarnation > 0:
                self.send(self._state())

    def _state(self) -> Message:
        """The newest state of this worker. A wait for others that has lasted for `max_stall` counts as a
        broken group: a new view ends it."""
        epoch, progress, since = self.epoch, self._progress, self._waiting_since
        if progress.get("epoch") != epoch:
            progress = {"step": -1, "cursor": [0, 0], "step_seconds": 0.0, "samples": 0, "world": 0}
        stuck = since is not None and time.monotonic() - since > self.max_stall_seconds
        broken = epoch if stuck else self._broken
        return {**progress, "type": "report", "epoch": epoch, "broken": broken}

    # the link's thread

    def _post(self, message: Message) -> None:
        """To the coordinator; that a group could not be built is for people to know as well."""
        now = time.monotonic()
        if message["type"] == "unbuilt" and now - self._unbuilt_at > _EXPLAIN_SECONDS:
            self._unbuilt_at = now
            view = self.plans.get(int(message["epoch"])) or self.view
            where = ", ".join(f"{m.name} at {m.address}" for m in view.members) if view else "unknown"
            self._say(
                f"not all workers reach each other ({where}): set SHOAL_HOST on each machine to an "
                "address of it that the others reach"
            )
        self.send(message)

    def _me(self) -> tuple[str, int]:
        return self.name, self.incarnation

    def _hello(self) -> Message:
        return {
            "type": "hello",
            "role": "worker",
            "name": self.name,
            "incarnation": self.incarnation,
            "address": self.address,
            "epoch": self.epoch,
            "step": self.step,
        }

    def _hear(self, message: Message) -> None:
        match message["type"]:
            case "welcome":
                self._welcome(message)
            case "view":
                self._view(View.from_wire(message["view"]))
            case "prepare":
                view = View.from_wire(message["view"])
                with self._news:
                    self.plans = {**self.plans, view.epoch: view}
                    self._news.notify_all()
                self.groups.want(view)
            case "blob":
                self.groups.heard(message)
            case _:
                self._note(message)

    def _note(self, message: Message) -> None:
        with self._news:
            match message["type"]:
                case "resized":
                    wish = self._again.get("resize")
                    if wish is not None and wish["size"] == message["size"]:
                        del self._again["resize"]
                case "donor":
                    self.donor = Donor(str(message["name"]), str(message["address"]))
                case "paused":
                    self._paused = (int(message["have"]), int(message["need"]))
                case "leave":
                    self.leaving = True
                    self._again["leaving"] = {"type": "leaving"}
                case "fenced":
                    self._fenced = True
                    self._fenced_because = str(message.get("reason", ""))
                    if self._group is not None:
                        self._group.interrupt()
                case "stop":
                    self._stopped = str(message["reason"])
                    self._stopped_well = not message.get("failed", True)
                    if self._group is not None:
                        self._group.interrupt()
                case other:
                    self._answers[other] = message
            self._news.notify_all()

    def _welcome(self, message: Message) -> None:
        with self._news:
            self.incarnation = int(message["incarnation"])
            again = list(self._again.values())
            self._news.notify_all()
        self.on_joined(self.incarnation)
        self.groups.repeat()
        self.send(self._state())
        for each in again:
            self.send(each)
        with self._news:
            for kind in _OF_THE_GROUP:
                if any(self._again.get(kind) is each for each in again):
                    del self._again[kind]

    def _view(self, view: View) -> None:
        with self._news:
            if self.view is not None and view.epoch < self.view.epoch:
                return
            self.view = view
            self._paused = None
            group = self._group
            self._news.notify_all()
        self.groups.want(view)
        if group is not None and group.epoch < view.epoch and view.kind != "switch":
            group.interrupt()

    def _newer(self, epoch: int) -> bool:
        return self.view is not None and self.view.epoch > epoch and self.view.kind != "switch"

    def _check_stopped(self) -> None:
        if self._stopped is None:
            return
        if self._stopped_well:
            self._say(f"nothing more to do: {self._stopped}")
            leave()
        raise Stopped(self._stopped)
