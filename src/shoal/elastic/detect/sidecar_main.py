"""The sidecar of one worker: sees that it is gone, stopped or stalled, and speaks for its machine.

One thread, one loop, no torch, nothing that blocks but the look-up of a host name. It is a child of the
worker in a session of its own; it ends when the coordinator knows that the worker is gone, when the
worker says so, or when no coordinator could be reached for a minute.

The worker's end comes as an event where the system has process descriptors (Linux 5.3); elsewhere a look
at the parent's pid shows it. Whether it is stopped is in /proc; without /proc no process is ever found
to be stopped.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from typing import Any

from shoal.elastic.detect import crash
from shoal.elastic.detect.detector import BEAT_SECONDS, Detector, Star
from shoal.elastic.detect.findings import Findings, Look
from shoal.elastic.detect.progress import Progress
from shoal.elastic.detect.uplink import Uplink
from shoal.elastic.wire import Message

__all__ = ["LOOK_SECONDS", "Watched", "main"]


class Watched:
    """The parent of this process. A pid that has gone to another process is never taken for it."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.descriptor: int | None = None
        """Becomes readable when it has ended; None where one must look."""
        self._stat: int | None = None
        try:
            if hasattr(os, "pidfd_open"):
                self.descriptor = os.pidfd_open(pid)
            self._stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            pass  # gone already, or a system that has neither: `gone` looks at the parent

    @property
    def gone(self) -> bool:
        """It has ended, whether or not anybody has reaped it."""
        if os.getppid() != self._pid:
            return True
        if self.descriptor is None:
            return False
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(0))

    @property
    def stopped(self) -> bool:
        """It is stopped by a signal or a debugger."""
        if self._stat is None:
            return False
        try:
            text = os.pread(self._stat, 512, 0)
        except OSError:  # it has just ended
            return False
        # the name, in parentheses, may hold anything, closing parentheses included
        return text[text.rfind(b")") + 2 : text.rfind(b")") + 3] in (b"T", b"t")

    def kill(self) -> None:
        """End it, in a way that it cannot refuse. Nothing when it is gone."""
        if not self.gone:
            os.kill(self._pid, 9)


LOOK_SECONDS = 0.05
"""How often the worker's state is looked at. Its end is an event and needs no look."""
_TELL_SECONDS = 60.0
"""How long a coordinator that cannot be reached is sought after the worker's end."""
_HEAR_SECONDS = 1.0
"""How long the coordinator may take to read the last message."""
_ASK_SECONDS = 0.2
"""How often the worker is asked where the coordinator is."""


def main(arguments: list[str]) -> int:
    """Watch the worker until it is gone and that has been reported. Returns the exit code."""
    worker, channel, memory = map(int, arguments)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # its end is the worker's end
    Sidecar(Watched(worker), socket.socket(fileno=channel), memory).run()
    return 0


class Sidecar:
    """The loop and what it holds."""

    def __init__(self, worker: Watched, channel: socket.socket, memory: int) -> None:
        self._worker = worker
        self._memory = memory
        self._channel: socket.socket | None = channel
        self._progress = Progress(memory)
        self._heard = b""
        self._uplink = Uplink(self._find, self._opened, self._told)
        self._detector: Detector = Star(BEAT_SECONDS, 0.0)
        self._findings = Findings(60.0, LOOK_SECONDS)
        self._settings: dict[str, Any] = {}
        self._incarnation = 0
        self._address: str | None = None
        self._asked_at = 0.0
        self._closed = False
        self._deserted = False
        self._told_at: float | None = None
        channel.setblocking(False)

    def run(self) -> None:
        """Until there is nothing left to report."""
        look_at = time.monotonic()
        gone_at: float | None = None
        while not self._closed:
            due = [look_at, self._detector_at(), self._uplink_at()]
            ready = self._wait(min(moment for moment in due if moment is not None))
            now = time.monotonic()
            if self._channel is not None and ready.get(self._channel.fileno()):
                self._listen()
            ended = self._deserted or self._worker.descriptor in ready
            if now >= look_at or (ended and gone_at is None):
                self._look(now)
                look_at = now + LOOK_SECONDS
            if self._incarnation:
                descriptor = self._uplink.descriptor
                self._uplink.turn(now, 0 if descriptor is None else ready.get(descriptor, 0))
            if gone_at is None and self._findings.gone:
                gone_at = now
                # readers of the worker's output see its end
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            if gone_at is not None and self._is_over(now, gone_at):
                break
            at = self._detector_at()
            if at is not None and (now >= at or self._detector.descriptor in ready):
                for message in self._detector.turn(now):
                    self._uplink.send(message)
                if self._detector.over:
                    self._beat_again()
        self._part()

    def _part(self) -> None:
        """Say farewell to those that watch this one: it would be missed."""
        self._detector.leave(time.monotonic())
        while self._detector.descriptor is not None and not self._detector.over:
            poll = select.poll()
            poll.register(self._detector.descriptor, select.POLLIN)
            poll.poll(max(0.0, (self._detector.next_at - time.monotonic()) * 1000))
            self._detector.turn(time.monotonic())
        self._detector.close()

    def _detector_at(self) -> float | None:
        """A star cannot beat without a connection; sidecars that gossip have each other."""
        idle = self._detector.descriptor is None and not self._uplink.connected
        return None if idle else self._detector.next_at

    def _uplink_at(self) -> float | None:
        return self._uplink.next_at if self._incarnation else None

    def _wait(self, until: float) -> dict[int, int]:
        poll = select.poll()
        if self._channel is not None:
            poll.register(self._channel.fileno(), select.POLLIN)
        if self._worker.descriptor is not None and not self._findings.gone:
            poll.register(self._worker.descriptor, select.POLLIN)
        if self._detector.descriptor is not None:
            poll.register(self._detector.descriptor, select.POLLIN)
        if self._uplink.descriptor is not None:
            poll.register(self._uplink.descriptor, self._uplink.interest)
        return dict(poll.poll(max(0.0, (until - time.monotonic()) * 1000)))

    def _look(self, now: float) -> None:
        gone = self._deserted or self._worker.gone
        stopped = not gone and self._worker.stopped
        outcome = self._findings.look(Look(gone, stopped, self._progress.shown()), now)
        for evidence in outcome.evidence:
            self._uplink.send(self._detailed(evidence))
        if gone and outcome.evidence:
            _warn(crash.report(self._memory))
        if outcome.ask:
            self._say({"type": "answer"})
        if outcome.end:
            self._worker.kill()
            _warn(
                f"shoal: {self._settings['name']} made no progress for {self._settings['max_stall']:g} s"
                " (max_stall) and was ended.\n"
            )

    def _detailed(self, evidence: Message) -> Message:
        """A worker that is gone has crashed, at some samples, or has kept an outcome, or was killed."""
        if evidence["type"] != "gone":
            return evidence
        words = crash.report(self._memory)
        if not words:
            return crash.kept(self._memory) or evidence
        where = self._progress.where()
        samples = [[where.first, where.end]] if where.first < where.end else []
        return {
            "type": "failed",
            "step": where.step,
            "samples": samples,
            "epoch_of_data": where.epoch,
            "error": f"it crashed: {crash.summary(words)}",
        }

    def _is_over(self, now: float, gone_at: float) -> bool:
        if not self._incarnation or now - gone_at > _TELL_SECONDS:
            return True
        if self._address is None and self._settings["address_file"] is None:
            return True  # the coordinator's address cannot be found any more
        if self._told_at is None:
            if self._uplink.connected and self._uplink.drained:
                self._uplink.finish()
                self._told_at = now
            return False
        if self._uplink.connected:
            return now - self._told_at > _HEAR_SECONDS
        if self._uplink.broken:  # it may have died before it read that
            self._told_at = None
            return False
        return True

    def _opened(self) -> None:
        self._uplink.send(
            {
                "type": "hello",
                "role": "sidecar",
                "key": self._settings["key"],
                "name": self._settings["name"],
                "incarnation": self._incarnation,
            }
        )
        for evidence in self._findings.standing():
            self._uplink.send(self._detailed(evidence))
        if isinstance(self._detector, Star):
            self._beat_again()
        for message in self._detector.restate():
            self._uplink.send(message)

    def _told(self, message: Message) -> None:
        """What the coordinator says: `gossip`, when the job is too large for a star; `star` again;
        `answer`, when it wants a word."""
        match message["type"]:
            case "gossip":
                self._gossip([str(each) for each in message["seeds"]])
            case "star":
                self._detector.leave(time.monotonic())
            case "answer":
                for said in self._detector.restate():
                    self._uplink.send(said)
            case _:
                pass

    def _beat_again(self) -> None:
        self._detector.close()
        self._detector = Star(self._settings["beat_seconds"], time.monotonic())

    def _gossip(self, seeds: list[str]) -> None:
        # many modules, and only large jobs need them
        from shoal.elastic.detect.gossip import Gossip

        if isinstance(self._detector, Gossip) and not self._detector.leaving:
            self._detector.join(seeds)
            return
        name, key = self._settings["name"], self._settings["key"]
        try:
            gossip = Gossip(name, self._incarnation, key, self._uplink.host, seeds)
        except OSError:  # no port is free: without an answer the star goes on
            return
        self._detector.close()
        self._detector = gossip
        for message in gossip.restate():
            self._uplink.send(message)

    def _find(self) -> str | None:
        """Where the coordinator is: as its file says, or else as the worker has said last."""
        now = time.monotonic()
        if now - self._asked_at >= _ASK_SECONDS:
            self._asked_at = now
            self._say({"type": "where"})
        path: str | None = self._settings["address_file"]
        if path is not None:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                return str(json.loads(_contents(path))["address"])
        return self._address

    def _say(self, message: Message) -> None:
        if self._channel is None:
            return
        with contextlib.suppress(OSError):  # it is ending, or does not listen: it is asked again
            self._channel.send(json.dumps(message).encode() + b"\n")

    def _listen(self) -> None:
        """Take in what the worker says.

        If its end closes without a word, its process is gone or has become another program.
        """
        assert self._channel is not None
        try:
            data = self._channel.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._channel.close()
            self._channel = None
            self._deserted = True
            return
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, message: Message) -> None:
        match message["type"]:
            case "begin":
                self._settings = message
                self._findings = Findings(message["max_stall"], LOOK_SECONDS)
            case "joined":
                self._incarnation = message["incarnation"]
                self._beat_again()  # another incarnation is another member
                self._uplink.restart()
            case "at":
                if message["address"] != self._address and not self._uplink.connected:
                    self._uplink.restart()
                self._address = message["address"]
            case _:
                self._closed = True


def _warn(sentence: str) -> None:
    """Without waiting for a reader: so much fits into a pipe with room."""
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    if sentence and dict(poll.poll(0)).get(2) == select.POLLOUT:
        os.write(2, sentence.encode()[: select.PIPE_BUF])


def _contents(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)
