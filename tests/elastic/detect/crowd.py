"""Many members in one process: real links, real sidecars, a real coordinator; and an ear in between.

A member here takes part in every view it is told of and otherwise says nothing, so that its machine is
silent when its sidecar is. Sidecars reach the coordinator through a `Tap`, which counts what they say.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from shoal.elastic.detect.guardian import Guardian
from shoal.elastic.link import Contact, Link
from shoal.elastic.wire import Message, address_of

from .harness import DEADLINE_SECONDS, wait_until


class Tap:
    """Carries what sidecars and their coordinator say to each other, and notes the sidecars' words."""

    def __init__(self, file: Path) -> None:
        """`file` says where the coordinator is."""
        self._file = file
        self._selector = selectors.DefaultSelector()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._wake, self._waker = socket.socketpair()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._unread: dict[socket.socket, bytearray] = {}
        self._names: dict[socket.socket, str] = {}
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._last: dict[tuple[str, str], Message] = {}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def count(self, kind: str) -> int:
        """How many messages of that type sidecars have said."""
        with self._lock:
            return sum(count for (_, each), count in self._counts.items() if each == kind)

    def last(self, kind: str) -> dict[str, Message]:
        """The newest of that type, by name."""
        with self._lock:
            return {name: message for (name, each), message in self._last.items() if each == kind}

    def close(self) -> None:
        self._waker.send(b"x")
        self._thread.join(DEADLINE_SECONDS)
        for sock in (*self._pairs, self._listening, self._wake, self._waker):
            sock.close()
        self._selector.close()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._wake:
                    return
                if key.fileobj is self._listening:
                    self._accept()
                elif key.fileobj in self._pairs:
                    self._carry(key.fileobj)  # type: ignore[arg-type]

    def _accept(self) -> None:
        theirs, _ = self._listening.accept()
        try:
            ours = socket.create_connection(
                address_of(json.loads(self._file.read_text())["address"]), 5.0
            )
        except (OSError, ValueError, KeyError):
            theirs.close()
            return
        self._unread[theirs] = bytearray()
        self._pairs[theirs], self._pairs[ours] = ours, theirs
        for sock in (theirs, ours):
            self._selector.register(sock, selectors.EVENT_READ)

    def _carry(self, sock: socket.socket) -> None:
        other = self._pairs[sock]
        try:
            data = sock.recv(1 << 16)
            other.sendall(data)
        except OSError:
            data = b""
        if data and sock in self._unread:
            self._note(sock, data)
        if not data:
            for each in (sock, other):
                self._selector.unregister(each)
                each.close()
                del self._pairs[each]
            self._unread.pop(sock, self._unread.pop(other, None))

    def _note(self, sock: socket.socket, data: bytes) -> None:
        unread = self._unread[sock]
        unread += data
        while len(unread) >= 4 and len(unread) >= 4 + int.from_bytes(unread[:4], "big"):
            length = int.from_bytes(unread[:4], "big")
            message: Message = json.loads(unread[4 : 4 + length])
            del unread[: 4 + length]
            if message["type"] == "hello":
                self._names[sock] = message["name"]
            with self._lock:
                self._counts[self._names[sock], message["type"]] += 1
                self._last[self._names[sock], message["type"]] = message


class Member:
    """A worker's link and its guardian."""

    def __init__(self, name: str, file: Path, tap: Tap) -> None:
        self.name = name
        self.incarnation = self.epoch = 0
        self.members: list[str] = []
        self.changed_at = 0.0
        self.fenced = 0
        self.muted = False
        self._file = file
        self._guardian: Guardian | None = None
        self._tap = tap
        self.link = Link(self._contact, self._hello, self._hear)

    @property
    def sidecar(self) -> int:
        assert self._guardian is not None
        return self._guardian.sidecar_pid

    def start(self) -> None:
        key = json.loads(self._file.read_text())["key"]
        self._guardian = Guardian(name=self.name, key=key, find=lambda: self._tap.address)
        self.link.start()

    def stop_machine(self) -> float:
        """Nothing is heard of it any more, though its connections stay open; the moment."""
        self.muted = True
        os.kill(self.sidecar, signal.SIGSTOP)
        return time.monotonic()

    def continue_machine(self) -> None:
        os.kill(self.sidecar, signal.SIGCONT)
        self.muted = False
        self.link.again()

    def close(self) -> None:
        self.link.close()
        if self._guardian is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.sidecar, signal.SIGCONT)
            self._guardian.close()

    def _contact(self) -> Contact | None:
        try:
            told = json.loads(self._file.read_text())
            return Contact(told["address"], told["key"])
        except (OSError, ValueError, KeyError):
            return None

    def _hello(self) -> Message:
        return {
            "type": "hello",
            "role": "worker",
            "name": self.name,
            "incarnation": self.incarnation,
            "address": f"{self.name}:1",
            "epoch": self.epoch,
            "step": 0 if self.epoch else -1,
        }

    def _hear(self, message: Message) -> None:
        if self.muted:
            return
        match message["type"]:
            case "welcome":
                if self.incarnation != message["incarnation"]:
                    self.incarnation = message["incarnation"]
                    assert self._guardian is not None
                    self._guardian.joined(self.incarnation)
            case "view":
                self._use(message["view"])
                self.link.send({"type": "recovered", "epoch": self.epoch, "step": 0, "cursor": [0, 0],
                                "seconds": 0.0, "how": "nothing"})  # fmt: skip
            case "donor":
                self.link.send({"type": "caught_up", "step": 0})
            case "prepare":
                self._use(message["view"])
                self.link.send({"type": "switched", "epoch": self.epoch, "step": 0, "cursor": [0, 0]})
            case "fenced":
                self.fenced += 1
                self.incarnation = self.epoch = 0
                self.link.again()
            case _:
                pass

    def _use(self, view: dict[str, Any]) -> None:
        self.epoch = view["epoch"]
        self.changed_at = time.monotonic()
        self.members = [each["name"] for each in view["members"]]


class Crowd:
    """A job of so many members, and its coordinator with these options."""

    def __init__(self, folder: Path, count: int, *options: str) -> None:
        self.file = folder / "coordinator.json"
        self._command = [
            sys.executable, "-m", "shoal.elastic.coordinator", "--minimum", "1", "--expect", str(count),
            "--sqlite", str(folder / "record.db"), "--address-file", str(self.file), *options,
        ]  # fmt: skip
        self.start_coordinator()
        self.tap = Tap(self.file)
        self.members = [Member(f"worker-{at}", self.file, self.tap) for at in range(count)]

    def __enter__(self) -> Self:
        for member in self.members:
            member.start()
        self.until_all_know(len(self.members))
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.close()
        self.coordinator.terminate()
        self.coordinator.wait(DEADLINE_SECONDS)
        self.tap.close()

    def start_coordinator(self) -> None:
        self.file.unlink(missing_ok=True)
        self.coordinator = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)
        wait_until(self.file.exists, "the coordinator did not publish its address")

    def kill_coordinator(self) -> None:
        self.coordinator.kill()
        self.coordinator.wait(DEADLINE_SECONDS)

    def until_all_know(self, count: int, of: Sequence[Member] | None = None) -> None:
        """These, or all, are in a view of so many."""
        members = self.members if of is None else of
        self.until(lambda: all(len(each.members) == count for each in members), f"not all know {count}")

    def until_watched(self, count: int) -> None:
        """So many sidecars know as many."""

        def watched() -> bool:
            newest = self.tap.last("gossiping").values()
            return sum(each["members"] == count for each in newest) >= count

        self.until(watched, f"not {count} know {count}")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, what, 60.0)

    def beats_in(self, seconds: float) -> int:
        """How many beats come in that time."""
        before = self.tap.count("beat")
        time.sleep(seconds)  # what happens in it is counted
        return self.tap.count("beat") - before

    def coordinator_seconds(self) -> float:
        """Of processor time that the coordinator has used."""
        fields = Path(f"/proc/{self.coordinator.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
