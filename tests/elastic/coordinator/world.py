"""A job in miniature: the production state machine, model workers, and a network that does its worst.

Every action takes an index that chooses among what is possible now, so that a driver (hypothesis, or a
random walk) can do anything at any time. What must never happen is checked as it would happen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from shoal.elastic.coordinator import events, machine, messages
from shoal.elastic.coordinator import record as records_format
from shoal.elastic.coordinator.record import Record
from shoal.elastic.coordinator.records import Refused
from shoal.elastic.coordinator.state import Settings, State
from shoal.elastic.coordinator.turn import Close, Effect, End, Grant, Report, Save, Tell, Wake
from shoal.elastic.view import View

from .workers import Content, Group, History, Violation, Worker

MINIMUM = 1
NAMES = 5
T = TypeVar("T")


class Cell:
    """The record, by compare-and-set."""

    def __init__(self) -> None:
        self.version = 0
        self.data: bytes | None = None

    def save(self, version: int, data: bytes) -> int:
        if version != self.version:
            raise Refused("another has written")
        return self.put(data)

    def put(self, data: bytes) -> int:
        self.version, self.data = self.version + 1, data
        return self.version

    def record(self) -> Record:
        return records_format.from_bytes(self.data) if self.data is not None else Record()


class CarelessCell(Cell):
    """One that writes whatever it is given: what the compare-and-set is there against."""

    def save(self, version: int, data: bytes) -> int:
        return self.put(data)


@dataclass
class Coordinator:
    """A process: its state, and effects that were decided and not carried out yet."""

    number: int
    state: State
    version: int
    outbox: deque[Effect] = field(default_factory=deque)
    frozen: bool = False
    ended: bool = False


class World:
    """See the module."""

    def __init__(self, cell: Cell | None = None, minimum: int = MINIMUM, star_limit: int = 64) -> None:
        self.cell = cell or Cell()
        self.minimum = minimum
        self.star_limit = star_limit
        self.now = 1000.0
        self.coordinators: dict[int, Coordinator] = {}
        self.workers: list[Worker] = []
        self.groups: dict[int, Group] = {}
        self.published: dict[int, View] = {}
        self.committed: list[Content] = []
        self.checkpoints: dict[int, History] = {}
        self.to_coordinator: dict[int, deque[dict[str, Any]]] = {}
        self.to_worker: dict[int, deque[dict[str, Any]]] = {}
        self.ends: dict[int, tuple[int, Worker, str]] = {}
        self.ended: tuple[str, bool] | None = None
        self.trace: list[str] = []
        self.restarts = 0
        self.accusations = 0
        self.committed_in = 0
        self.former = Record()
        self._number = 0
        self.start_coordinator()

    # coordinators

    def start_coordinator(self) -> None:
        if len(self.coordinators) >= 2:
            return
        self._number += 1
        record = self.cell.record()
        record = records_format.from_bytes(records_format.to_bytes(record))
        settings = Settings(step_save_seconds=0.0, star_limit=self.star_limit)
        state = machine.resume(_with_minimum(record, self.minimum), settings, self.now)
        coordinator = Coordinator(self._number, state, self.cell.version)
        self.coordinators[self._number] = coordinator
        self._step(coordinator, events.Started(f"coordinator:{self._number}"))
        self.flush(0, 1 << 10)

    def crash_coordinator(self, index: int) -> None:
        coordinator = _pick(list(self.coordinators.values()), index)
        if coordinator is not None:
            self._end_coordinator(coordinator)

    def freeze_coordinator(self, index: int) -> None:
        coordinator = _pick(list(self.coordinators.values()), index)
        if coordinator is not None:
            coordinator.frozen = not coordinator.frozen

    def flush(self, index: int, count: int) -> None:
        """Carry out the next effects that a coordinator has decided on."""
        coordinator = _pick([c for c in self.coordinators.values() if not c.frozen], index)
        while coordinator is not None and coordinator.outbox and count > 0:
            count -= 1
            try:
                self._carry_out(coordinator, coordinator.outbox.popleft())
            except Refused:
                self._end_coordinator(coordinator)
                return
            if coordinator.ended:
                self._end_coordinator(coordinator)
                return

    def _carry_out(self, coordinator: Coordinator, effect: Effect) -> None:
        match effect:
            case Save(record=record):
                former = self.cell.record()
                coordinator.version = self.cell.save(
                    coordinator.version, records_format.to_bytes(record)
                )
                if record.epoch < former.epoch:
                    raise Violation(f"epochs go back from {former.epoch} to {record.epoch}")
                self._saved(former, record)
                if effect.why == "manifest":
                    self._taken(coordinator, record)
            case Tell(connection=connection, message=message):
                self._told(connection, message)
                if connection in self.to_worker:
                    self.to_worker[connection].append(message)
            case Close(connection=connection):
                self._close(connection, tell=False)
            case End(reason=reason, failed=failed):
                self.ended = (reason, failed)
                coordinator.ended = True
            case Wake() | Report() | Grant():
                pass

    def _saved(self, former: Record, record: Record) -> None:
        manifest = record.manifest
        if manifest is not None and manifest != former.manifest:
            history = self.checkpoints[manifest["number"]]
            self._check_prefix(history, "the newest checkpoint")
        view, known = record.view, former.view
        first = view is not None and view.kind == "first" and (known is None or known.epoch < view.epoch)
        if first and record.manifest is None and former.step > 0:
            raise Violation("the job begins again at step 0")
        if known is None or (view is not None and known.epoch < view.epoch and view.kind != "switch"):
            self.former = former

    def _begin_again(self, group: Group) -> None:
        """A first view without states: the committed steps behind the checkpoint are given up."""
        self._give_up(group, len(self.checkpoints.get(group.manifest, ())), "is taken up again")
        group.outcome = ("first", group.manifest, group.ids[0], None)
        self.restarts += 1

    def _give_up(self, group: Group, step: int, how: str) -> None:
        """Committed steps are gone with all members of the views that committed them, or may not be.

        A step of a group needs each of its members, and epochs never go back: what is agreed in a group
        that a member has left is of no effect, and gives nothing up.
        """
        if not all(self._takes_part(group, who) for who in group.ids):
            return
        holders = [w.id for w in self.workers if w.alive and self._goes_on(w)]
        if len(self.committed) > step and holders:
            raise Violation(f"step {step} {how} though {holders} have all {len(self.committed)}")
        del self.committed[step:]

    def _goes_on(self, worker: Worker) -> bool:
        was_member = any(member.id == worker.id for member in self.former.members)
        return was_member and worker.epoch > 0 and worker.applied >= len(self.committed)

    def _told(self, connection: int, message: dict[str, Any]) -> None:
        if message["type"] in ("view", "prepare"):
            view = View.from_wire(message["view"])
            known = self.published.setdefault(view.epoch, view)
            if (known.members, known.kind) != (view.members, view.kind):
                raise Violation(f"two different views of epoch {view.epoch}: {known} and {view}")

    def _taken(self, coordinator: Coordinator, record: Record) -> None:
        """A checkpoint is kept: what follows is the word to its sender, a member at that moment."""
        answer = coordinator.outbox[0]
        assert isinstance(answer, Tell) and answer.message["type"] == "published"
        if answer.connection not in self.ends or record.view is None:
            return
        sender = self.ends[answer.connection][1]
        if all(member.id != sender.id for member in record.view.members):
            raise Violation(f"a checkpoint of {sender.id} is taken, who is no member")

    def _end_coordinator(self, coordinator: Coordinator) -> None:
        del self.coordinators[coordinator.number]
        for connection, (number, _, _) in list(self.ends.items()):
            if number == coordinator.number:
                self._close(connection, tell=False)

    def _step(self, coordinator: Coordinator, event: events.Event) -> None:
        coordinator.state, effects = machine.step(coordinator.state, event, self.now)
        coordinator.outbox.extend(effects)

    def poll(self) -> None:
        """Coordinators look whether another has written the record."""
        for coordinator in list(self.coordinators.values()):
            if not coordinator.frozen and coordinator.version != self.cell.version:
                self._end_coordinator(coordinator)

    # the network

    def deliver(self, index: int) -> None:
        """The next frame of some connection arrives, whichever way it goes."""
        ways = [(c, "up") for c, q in self.to_coordinator.items() if q and self._passes(c)]
        ways += [(c, "down") for c, q in self.to_worker.items() if q and self._passes(c, down=True)]
        chosen = _pick(ways, index)
        if chosen is None:
            return
        connection, way = chosen
        if way == "up":
            self._arrive(connection, self.to_coordinator[connection].popleft())
        else:
            message = self.to_worker[connection].popleft()
            _, worker, role = self.ends[connection]
            if role == "worker":
                self._hear(worker, message)
            else:
                self._asked(worker, message)

    def duplicate(self, index: int) -> None:
        """A word is said twice, as when it is insisted on after a connection was lost."""
        chosen = _pick(
            [q for c, q in self.to_coordinator.items() if q and self.ends[c][2] == "worker"], index
        )
        if chosen is not None and chosen[0]["type"] != "hello":
            chosen.insert(0, chosen[0])

    def _passes(self, connection: int, down: bool = False) -> bool:
        number, worker, _ = self.ends[connection]
        if down and (not worker.alive or connection not in (worker.connection, worker.sidecar)):
            return False
        return worker.reachable and not self.coordinators[number].frozen

    def _arrive(self, connection: int, message: dict[str, Any]) -> None:
        number, _, role = self.ends[connection]
        coordinator = self.coordinators[number]
        if message["type"] == "eof":
            self._close(connection, tell=False)
            self._step(coordinator, events.Dropped(connection))
            return
        understand = messages.worker_event if role == "worker" else messages.sidecar_event
        event = understand(connection, message)
        assert event is not None, message
        self._step(coordinator, event)

    def _close(self, connection: int, tell: bool) -> None:
        if connection not in self.ends:
            return
        number, worker, role = self.ends[connection]
        if tell:
            self.to_coordinator[connection].append({"type": "eof"})
        else:
            del self.ends[connection], self.to_coordinator[connection], self.to_worker[connection]
        if role == "worker" and worker.connection == connection:
            worker.connection, worker.coordinator = 0, None
        if role == "sidecar" and worker.sidecar == connection:
            worker.sidecar = 0
        del number

    def break_connection(self, index: int) -> None:
        """What is on its way down is lost; what was said before arrives, then the end."""
        open_ones = [
            c for c, (_, w, _) in self.ends.items() if c in (w.connection, w.sidecar) and w.reachable
        ]
        connection = _pick(open_ones, index)
        if connection is None:
            return
        self.to_worker[connection].clear()
        self._close(connection, tell=True)

    def partition(self, index: int) -> None:
        # A machine that is cut off closes no connections: only one that has them open is cut off.
        worker = _pick([w for w in self.workers if w.alive and (w.connection or not w.reachable)], index)
        if worker is not None:
            worker.reachable = not worker.reachable

    def connect(self, index: int) -> None:
        """A worker without a connection finds the coordinator that the record names."""
        worker = _pick([w for w in self.workers if w.alive and w.reachable and not w.connection], index)
        if worker is not None:
            self._connect(worker)

    def _connect(self, worker: Worker) -> None:
        address = self.cell.record().address
        number = int(address.rpartition(":")[2] or 0)
        coordinator = self.coordinators.get(number)
        if coordinator is None or coordinator.frozen:
            return
        worker.coordinator = number
        worker.connection = self._open(number, worker, "worker")
        hello = {
            "type": "hello",
            "role": "worker",
            "name": worker.name,
            "incarnation": worker.incarnation,
        }
        hello |= {"address": f"{worker.name}:1", "epoch": worker.epoch, "step": worker.applied}
        self._say(worker, hello)

    def _open(self, number: int, worker: Worker, role: str) -> int:
        self._number += 1
        connection = self._number
        self.ends[connection] = (number, worker, role)
        self.to_coordinator[connection] = deque()
        self.to_worker[connection] = deque()
        return connection

    def _say(self, worker: Worker, message: dict[str, Any]) -> None:
        if worker.connection:
            self.to_coordinator[worker.connection].append(message)

    def _insist(self, worker: Worker, message: dict[str, Any]) -> None:
        worker.insisted[message["type"]] = message
        self._say(worker, message)

    # workers come and go

    def join(self, index: int) -> None:
        names = {f"w{number}" for number in range(NAMES)} - {w.name for w in self.workers if w.alive}
        name = _pick(sorted(names), index)
        if name is not None and self.ended is None:
            self.workers.append(Worker(name))

    def crash(self, index: int, sidecar_tells: bool) -> None:
        worker = _pick([w for w in self.workers if w.alive], index)
        if worker is not None:
            for group in self.groups.values():
                group.handed_over.pop(worker.name, None)
            self._die(worker, sidecar_tells)

    def notice(self, index: int) -> None:
        worker = _pick([w for w in self.workers if w.alive and not w.leaving], index)
        if worker is not None:
            worker.leaving = True
            self._insist(worker, {"type": "leaving"})

    def _die(self, worker: Worker, sidecar_tells: bool) -> None:
        worker.alive = False
        worker.reachable = (
            True  # its kernel, or the time-out of its connections, says that they are closed
        )
        if sidecar_tells and worker.sidecar:
            self.to_coordinator[worker.sidecar].append({"type": "gone"})
        for connection in (worker.connection, worker.sidecar):
            if connection:
                self._close(connection, tell=True)

    # what its sidecar hears

    def _asked(self, worker: Worker, message: dict[str, Any]) -> None:
        if message["type"] == "star":
            worker.gossips = ""
            return
        if message["type"] == "gossip" and not worker.gossips:
            self._number += 1
            worker.gossips = str(self._number)
        self._gossips(worker)

    def _gossips(self, worker: Worker) -> None:
        """In this model all that gossip know each other."""
        if worker.gossips and worker.sidecar:
            count = sum(bool(each.gossips) and each.alive for each in self.workers)
            message = {"type": "gossiping", "sidecar": worker.gossips, "address": f"{worker.name}:7"}
            self.to_coordinator[worker.sidecar].append(
                {**message, "members": max(count, 1), "again_seconds": 5.0}
            )

    def accuse(self, index: int, heard: bool) -> None:
        """Some sidecar says of some other, rightly or wrongly, that it is silent, or that it is not."""
        pairs = [
            (accuser, other)
            for accuser in self.workers
            for other in self.workers
            if accuser.alive and accuser.sidecar and other.incarnation and accuser is not other
        ]
        gossiping = [pair for pair in pairs if pair[1].gossips]
        chosen = _pick(gossiping or pairs, index)
        if chosen is not None:
            accuser, other = chosen
            self.accusations += bool(other.gossips)
            word = {"type": "heard" if heard else "silent", "incarnation": other.incarnation}
            self.to_coordinator[accuser.sidecar].append({**word, "sidecar": other.gossips or "-"})

    # what a worker hears

    def _hear(self, worker: Worker, message: dict[str, Any]) -> None:
        match message["type"]:
            case "welcome":
                worker.incarnation = message["incarnation"]
                if worker.coordinator is not None and not worker.sidecar:
                    worker.sidecar = self._open(worker.coordinator, worker, "sidecar")
                self.to_coordinator[worker.sidecar].append(
                    {
                        "type": "hello",
                        "role": "sidecar",
                        "name": worker.name,
                        "incarnation": worker.incarnation,
                    }
                )
                self._gossips(worker)
                for again in list(worker.insisted.values()):
                    self._say(worker, again)
            case "view":
                view = View.from_wire(message["view"])
                worker.manifest = message.get("manifest", {}).get("number", 0)
                self._enter(worker, view)
            case "prepare":
                view = View.from_wire(message["view"])
                if view.epoch > max(worker.epoch, worker.entering):
                    worker.planned = view
            case "donor":
                worker.donor = message["name"]
            case "fenced":
                worker.forget()
                worker.leaving = False
                self._break(worker)
            case "leave":
                worker.leaving = True
                self._insist(worker, {"type": "leaving"})
            case "abandon":
                if worker.planned is not None and worker.planned.epoch == message["epoch"]:
                    worker.planned = None
            case "let_go":
                if worker.leaving:
                    self._say(worker, {"type": "left", "step": worker.applied})
                    self._die(worker, sidecar_tells=True)
            case "stop":
                self._die(worker, sidecar_tells=True)
            case _:
                pass

    def _break(self, worker: Worker) -> None:
        for connection in (worker.connection, worker.sidecar):
            if connection:
                self._close(connection, tell=True)

    def _enter(self, worker: Worker, view: View) -> None:
        if view.rank_of(*worker.id) is None or view.epoch <= max(worker.epoch, worker.entering):
            return
        worker.leave_group()
        worker.entering = view.epoch
        group = self.groups.setdefault(view.epoch, Group(view))
        if not worker.has_been_in:
            # A joiner follows its donor, and has no state of its own until it is in.
            worker.history, worker.pending = None, None
        group.posted[worker.id] = (worker.applied, worker.pending)
        group.histories[worker.id] = worker.history or ()
        group.manifest = max(group.manifest, worker.manifest) if view.kind == "first" else 0
        if set(group.posted) == set(group.ids):
            self._agree(group)

    def _agree(self, group: Group) -> None:
        """All have said what they have: what follows is the same for all."""
        applied = {who: step for who, (step, _) in group.posted.items()}
        newest = max(applied.values())
        if newest < 0:
            if group.view.kind != "first":
                raise Violation(f"nobody in epoch {group.view.epoch} has a state")
            self._begin_again(group)
            return
        if newest < len(self.committed):
            self._give_up(group, newest, "goes on")
        donor = next(who for who in group.ids if applied[who] == newest)
        pending = {content for _, content in group.posted.values() if content is not None}
        if any(step != newest for step in applied.values()):
            group.outcome = ("state", newest, donor, None)
        elif pending:
            if len(pending) > 1:
                raise Violation(f"two results of one step: {pending}")
            holder = next(who for who in group.ids if group.posted[who][1] is not None)
            group.outcome = ("buckets", newest + 1, holder, pending.pop())
        else:
            group.outcome = ("rerun", newest, donor, None)

    # the training

    def work(self, index: int) -> None:
        """Some worker does the next thing that it can do."""
        able: list[Callable[[], None]] = []
        for worker in self.workers:
            if worker.alive:
                able += self._can(worker)
        chosen = _pick(able, index)
        if chosen is not None:
            chosen()

    def _can(self, worker: Worker) -> list[Callable[[], None]]:
        able: list[Callable[[], None]] = []
        if worker.entering:
            group = self.groups[worker.entering]
            if group.outcome is not None and self._has_what_it_takes(worker, group):
                able.append(lambda: self._install(worker, group))
            elif any(not self._in(group, who) for who in group.ids):
                able.append(lambda: self._say_broken(worker, worker.entering))
            return able
        if worker.epoch:
            group = self.groups[worker.epoch]
            step = worker.applied + 1
            if not worker.gave:
                able.append(lambda: self._give(worker, group, step))
            elif worker.pending is not None:
                able.append(lambda: self._apply(worker, group, step))
            elif group.result(step) is not None:
                able.append(lambda: self._receive(worker, group, step))
            elif any(not self._in(group, who) for who in group.ids):
                able.append(lambda: self._say_broken(worker, worker.epoch))
            return able
        if worker.donor is not None:
            able.append(lambda: self._follow(worker))
        return able

    def _in(self, group: Group, who: tuple[str, int]) -> bool:
        """Whether a member is alive and still works in, or towards, this group."""
        epoch = group.view.epoch
        worker = self._find(who)
        return (
            worker is not None
            and max(worker.epoch, worker.entering) in (0, epoch)
            and (
                worker.epoch == epoch
                or worker.entering == epoch
                or epoch not in self.groups
                or worker.epoch == 0
            )
            and not (worker.epoch == 0 and worker.entering == 0 and bool(group.gave))
        )

    def _takes_part(self, group: Group, who: tuple[str, int]) -> bool:
        """Whether a member is alive and has not entered a later epoch."""
        worker = self._find(who)
        return worker is not None and max(worker.epoch, worker.entering) == group.view.epoch

    def _find(self, who: tuple[str, int]) -> Worker | None:
        return next((w for w in self.workers if w.alive and w.id == who), None)

    def _has_what_it_takes(self, worker: Worker, group: Group) -> bool:
        assert group.outcome is not None
        how, step, source, content = group.outcome
        own = group.posted[worker.id]
        needs = (how == "state" and own[0] != step) or (how == "buckets" and own[1] is None)
        del content
        return not needs or self._find(source) is not None

    def _install(self, worker: Worker, group: Group) -> None:
        assert group.outcome is not None
        how, step, source, content = group.outcome
        if how == "first":
            worker.history = self.checkpoints.get(step, ())
        if how == "state" and worker.applied != step:
            worker.history = group.histories[source]
        if how == "buckets":
            assert worker.history is not None and content is not None
            worker.history = (*worker.history, content)
        worker.pending = None
        worker.epoch, worker.entering = group.view.epoch, 0
        self._use(worker, group)
        message = {"type": "recovered", "epoch": worker.epoch, "step": worker.applied}
        self._insist(worker, message | {"cursor": [0, worker.applied], "seconds": 0.1, "how": how})

    def _give(self, worker: Worker, group: Group, step: int) -> None:
        """Give to a step, and say which epoch one is ready for."""
        ready, planned = 0, worker.planned
        if planned is not None and planned.epoch > worker.epoch and self._built(worker, planned):
            ready = planned.epoch
        group.gave.setdefault(step, {})[worker.id] = ready
        worker.gave = True

    def _built(self, worker: Worker, planned: View) -> bool:
        if planned.rank_of(*worker.id) is None:
            return True
        members = [self._find(member.id) for member in planned.members]
        return all(
            m is not None and m.planned is not None and m.planned.epoch >= planned.epoch for m in members
        )

    def _say_broken(self, worker: Worker, epoch: int) -> None:
        report = {"type": "report", "step": -1, "cursor": [0, 0], "step_seconds": 0.0, "samples": 0}
        self._say(worker, report | {"world": 0, "epoch": epoch, "broken": epoch})

    def _receive(self, worker: Worker, group: Group, step: int) -> None:
        worker.pending = group.result(step)

    def _apply(self, worker: Worker, group: Group, step: int) -> None:
        assert worker.history is not None and worker.pending is not None
        worker.history = (*worker.history, worker.pending)
        worker.pending, worker.gave = None, False
        self._reach(worker, group)
        switch = group.switch(step)
        if switch:
            self._switch(worker, self.published[switch])
        elif step % 2 == 0:
            report = {"type": "report", "step": worker.applied, "cursor": [0, worker.applied]}
            report |= {"step_seconds": 0.1, "samples": 1, "world": group.view.size}
            self._say(worker, report | {"epoch": worker.epoch, "broken": 0})

    def _switch(self, worker: Worker, view: View) -> None:
        assert worker.history is not None
        group = self.groups.setdefault(view.epoch, Group(view))
        group.handed_over[worker.name] = worker.history
        if view.rank_of(*worker.id) is None:
            self._say(worker, {"type": "left", "step": worker.applied})
            self._die(worker, sidecar_tells=True)
            return
        worker.epoch = view.epoch
        self._use(worker, group)
        self._insist(
            worker,
            {
                "type": "switched",
                "epoch": view.epoch,
                "step": worker.applied,
                "cursor": [0, worker.applied],
            },
        )

    def _follow(self, worker: Worker) -> None:
        """A joiner takes what its donor has, and goes into the next epoch with it."""
        for group in self.groups.values():
            if group.view.rank_of(*worker.id) is not None and worker.donor in group.handed_over:
                worker.history = group.handed_over[worker.donor]
                self._switch(worker, group.view)
                return
        source = next((w for w in self.workers if w.alive and w.name == worker.donor and w.epoch), None)
        if source is None:
            return
        worker.history = source.history
        if not worker.caught_up:
            worker.caught_up = True
            self._insist(worker, {"type": "caught_up", "step": worker.applied})

    def _use(self, worker: Worker, group: Group) -> None:
        worker.gave = False
        worker.donor = None
        worker.caught_up = False
        worker.insisted.pop("caught_up", None)
        self._reach(worker, group)

    def _reach(self, worker: Worker, group: Group) -> None:
        """A step is committed once every member of the view has applied it, each in that view."""
        assert worker.history is not None
        group.reached[worker.id] = worker.applied
        if set(group.reached) == set(group.ids):
            done = min(group.reached.values())
            self._check_prefix(worker.history[:done], f"what epoch {group.view.epoch} commits")
            for step in range(len(self.committed), done):
                self.committed.append(worker.history[step])
                self.committed_in = group.view.epoch
        # One that has been put out and has not heard of it may apply what nobody else will have.
        if group.view.epoch >= self.committed_in:
            self._check_prefix(worker.history, f"{worker.id} in epoch {group.view.epoch}")

    def _check_prefix(self, history: History, whose: str) -> None:
        common = min(len(history), len(self.committed))
        if list(history[:common]) != self.committed[:common]:
            raise Violation(f"{whose}: {history} differs from what was committed: {self.committed}")

    def publish(self, index: int) -> None:
        """A member publishes a checkpoint of what it knows to be committed: one step before its last."""
        worker = _pick([w for w in self.workers if w.alive and w.epoch and w.applied > 1], index)
        if worker is None or worker.history is None:
            return
        step = worker.applied - 1
        if step <= len(self.committed):
            number = len(self.checkpoints) + 1
            self.checkpoints[number] = tuple(self.committed[:step])
            manifest = {"step": step, "number": number}
            self._say(worker, {"type": "publish", "epoch": worker.epoch, "manifest": manifest})

    # time

    def advance(self, seconds: float) -> None:
        """Time passes: sidecars beat, coordinators wake. In half a second what is on its way arrives."""
        until = self.now + seconds
        if seconds > 0.5:
            for worker in self.workers:
                if worker.alive and worker.reachable and not worker.connection:
                    self._connect(worker)
            for connection in list(self.to_coordinator):
                while self.to_coordinator.get(connection) and self._passes(connection):
                    self._arrive(connection, self.to_coordinator[connection].popleft())
        while self.now < until:
            self.now = min(until, self.now + 0.1)
            for connection, (number, worker, role) in list(self.ends.items()):
                coordinator = self.coordinators[number]
                quiet = connection in (worker.sidecar, worker.connection) and worker.alive
                if role == "sidecar" and quiet and not worker.gossips and self._passes(connection):
                    self._step(coordinator, events.Beat(connection, 0.0))
            for coordinator in list(self.coordinators.values()):
                wake = coordinator.state.wake_at
                if not coordinator.frozen and wake is not None and self.now >= wake:
                    self._step(coordinator, events.Tick())

    def settle(self, rounds: int = 400) -> None:
        """The network is quiet and nobody fails any more: what can go on must go on."""
        for worker in self.workers:
            worker.reachable = True
        for coordinator in self.coordinators.values():
            coordinator.frozen = False
        if not self.coordinators:
            self.start_coordinator()
        least = len(self.committed)
        for index in range(rounds):
            for number in range(len(self.workers)):
                self.connect(number)
            for _ in range(4):
                while any(q and self._passes(c) for c, q in self.to_coordinator.items()) or any(
                    q and self._passes(c, down=True) for c, q in self.to_worker.items()
                ):
                    self.deliver(0)
                for number in range(len(self.coordinators)):
                    self.flush(number, 1 << 10)
            for worker in list(self.workers):
                for each in self._can(worker) if worker.alive else []:
                    each()
                    break
            self.advance(0.1)
            self.poll()
            if not self.coordinators and self.ended is None:
                self.start_coordinator()
            least = min(least, len(self.committed))
            if self.ended is not None or len(self.committed) >= least + 3:
                return
            if index % 10 == 9 and sum(w.alive and not w.leaving for w in self.workers) < self.minimum:
                return
        alive = [
            (w.id, w.gossips, w.epoch, w.entering, w.applied, w.leaving) for w in self.workers if w.alive
        ]
        raise Violation(f"nothing goes on: {alive}; {self.cell.record()}")


def _with_minimum(record: Record, minimum: int) -> Record:
    return replace(record, minimum=minimum, key="key")


def _pick(choices: list[T], index: int) -> T | None:
    return choices[index % len(choices)] if choices else None
