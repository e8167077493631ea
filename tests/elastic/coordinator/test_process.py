"""The real process, real sockets, a real file: what the machine decides is what happens."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sqlite3
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.elastic import wire
from shoal.elastic.coordinator.records import SqliteRecords
from tests.elastic.machine import Baseline

from .clients import Client, Process, Worker

pytestmark = [pytest.mark.process, pytest.mark.slow]

Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[Process] = []

    def begin(*arguments: str, env: dict[str, str] | None = None) -> Process:
        running.append(Process(tmp_path, *arguments, env=env))
        return running[-1]

    yield begin
    for process in running:
        process.close()


def pair(process: Process) -> tuple[Worker, Worker]:
    first = Worker(process, "a").welcomed()
    second = Worker(process, "b").welcomed()
    for each in (first, second):
        each.hear("view")
        each.recovered(1)
    return first, second


def test_first_view_and_a_clean_end(start: Start) -> None:
    process = start("--minimum", "2")
    first, second = pair(process)
    assert process.file.stat().st_mode & 0o777 == 0o600
    assert (process.folder / "record.db").stat().st_mode & 0o777 == 0o600
    assert process.end() == 0
    assert first.is_closed()
    assert second.is_closed()
    assert process.said() == "coordinator: SIGTERM\n"


def test_all_done_ends_the_job(start: Start) -> None:
    process = start("--minimum", "2")
    workers = pair(process)
    for worker in workers:
        worker.say("done", step=10, cursor=[1, 0])
        assert worker.sidecar is not None
        worker.sidecar.say("done", step=10, cursor=[1, 0])
    for worker in workers:
        assert worker.hear("stop") == {"type": "stop", "reason": "all epochs are over", "failed": False}
        worker.close()
    assert process.child.wait(10.0) == 0
    late = start("--minimum", "2")
    assert Worker(late, "c").hear("stop")["failed"] is False


def test_one_that_ends_with_an_error_after_its_data_has_not_finished(start: Start) -> None:
    """Only its sidecar sees the exit code. The other has finished, and the job waits for a restart."""
    process = start("--minimum", "2")
    first, second = pair(process)
    for worker in (first, second):
        worker.say("done", step=10, cursor=[1, 0])
        assert worker.sidecar is not None
    assert first.sidecar is not None
    assert second.sidecar is not None
    first.sidecar.say("done", step=10, cursor=[1, 0])
    assert not first.is_closed(0.2), "the process of the other has not ended"
    error = "it ended with exit code 3"
    second.sidecar.say("failed", step=10, samples=[], epoch_of_data=0, error=error)
    assert not first.is_closed(0.5)
    assert process.child.poll() is None


def test_a_job_that_has_failed_ends_its_coordinator_so(start: Start) -> None:
    """Its exit status and its last line tell, too, and so does whoever starts again from its record."""
    process = start("--minimum", "2")
    workers = pair(process)
    for worker in workers:
        worker.say("failed", step=1, samples=[[0, 4]], epoch_of_data=0, error="ValueError: bad")
    assert workers[1].hear("stop")["failed"] is True
    for worker in workers:
        worker.close()
    assert process.child.wait(10.0) == 4
    assert process.said().startswith("coordinator: the job has failed: two workers failed on the same")
    again = start("--minimum", "2")
    assert Worker(again, "c").hear("stop")["failed"] is True


def test_both_connections_lost_is_a_loss(start: Start, baseline: Baseline) -> None:
    process = start("--minimum", "2")
    first, second = pair(process)
    grown(process, first, second, "c")
    began = time.monotonic()
    second.close()
    told = first.hear("view")
    seconds = time.monotonic() - began
    print(f"{seconds * 1e3:.1f} ms, of which 100 are patience")
    assert [each["name"] for each in told["view"]["members"]] == ["a", "c"]
    assert 0.09 < seconds < baseline.allow(1.0)


def grown(process: Process, *members_and_name: Worker | str) -> Worker:
    *members, name = members_and_name
    assert isinstance(name, str)
    joiner = Worker(process, name).welcomed()
    assert joiner.hear("donor")["name"] == "a"
    joiner.say("caught_up", step=4)
    for each in [*members, joiner]:
        assert isinstance(each, Worker)
        epoch = each.hear("prepare")["view"]["epoch"]
        each.say("switched", epoch=epoch, step=4, cursor=[0, 4])
    return joiner


def test_how_soon_all_are_told_of_a_loss(start: Start, baseline: Baseline) -> None:
    """Loss to told, with the durable write between: the aim is 5 ms."""
    process = start("--minimum", "1")
    first = Worker(process, "a").welcomed()
    first.hear("view")
    first.recovered(1)
    taken: list[float] = []
    for number in range(20):
        joiner = grown(process, first, f"j{number}")
        assert joiner.sidecar is not None
        time.sleep(0.02)
        began = time.perf_counter()
        joiner.sidecar.say("gone")
        view = first.hear("view")["view"]
        taken.append(time.perf_counter() - began)
        first.recovered(view["epoch"], 4)
        joiner.close()
    print(f"median {statistics.median(taken) * 1e3:.2f} ms, longest {max(taken) * 1e3:.2f} ms")
    assert statistics.median(taken) < baseline.allow(0.05)


def test_a_stopped_worker_is_fenced_and_rejoins(start: Start) -> None:
    """training-N2, the membership side."""
    process = start("--minimum", "2")
    first, second = pair(process)
    grown(process, first, second, "c")
    assert second.sidecar is not None
    second.sidecar.say("stopped")
    for _ in range(9):
        for each in (first, second):
            assert each.sidecar is not None
            each.sidecar.say("beat", seq=1, late_seconds=0.0)
        time.sleep(0.1)
    assert [m["name"] for m in first.hear("view")["view"]["members"]] == ["a", "c"]
    assert "stopped" in second.hear("fenced")["reason"]
    again = Worker(process, "b").welcomed()
    assert again.incarnation == 4


def test_a_restart_keeps_epoch_and_incarnations(start: Start, baseline: Baseline) -> None:
    """training-N1: killed, and back: no incarnation twice, and the loss meanwhile is found."""
    process = start("--minimum", "1", "--expect", "2")
    first, second = pair(process)
    key = process.key
    process.child.kill()
    process.child.wait(10.0)
    second.close()
    process = start("--minimum", "1")
    assert process.key == key
    back = Worker(process, "a", incarnation=1, epoch=1).welcomed()
    began = time.monotonic()
    view = back.hear("view")["view"]
    print(f"told {time.monotonic() - began:.3f} s after it was back")
    assert (view["epoch"], view["kind"], len(view["members"])) == (2, "loss", 1)
    assert time.monotonic() - began < baseline.allow(1.0)
    assert Worker(process, "c").welcomed().incarnation == 3
    first.close()


def test_a_zombie_is_refused_and_ends(start: Start, tmp_path: Path) -> None:
    """Another has taken over: the former one's next write is refused, or it looks and sees."""
    old = start("--minimum", "2")
    os.kill(old.child.pid, signal.SIGSTOP)
    new = start("--minimum", "2")
    os.kill(old.child.pid, signal.SIGCONT)
    assert old.child.wait(10.0) == 3
    assert "another coordinator" in old.said() or "not at version" in old.said()
    assert new.child.poll() is None
    pair(new)
    with contextlib.closing(sqlite3.connect(tmp_path / "record.db")) as database:
        record = json.loads(database.execute("SELECT data FROM record").fetchone()[0])
    assert record["address"] == new.address


def test_a_zombie_that_decides_tells_nobody(start: Start, tmp_path: Path) -> None:
    """Its record was written by somebody else a moment ago: nothing of its next decision gets out."""
    process = start("--minimum", "1")
    records = SqliteRecords(tmp_path / "record.db")
    kept = records.load()
    assert kept.data is not None
    records.save(kept.version, kept.data)
    records.close()
    worker = Worker(process, "a")
    with pytest.raises(wire.Closed):
        worker.hear("welcome")
    assert process.child.wait(10.0) == 3


def test_another_key_is_closed_at_once(start: Start) -> None:
    """Stale keys of an older attempt too: they are as wrong as any."""
    process = start("--minimum", "1")
    for key in ("", "wrong", process.key[:-1], process.key + "0"):
        client = Client(process, key=key)
        client.say(
            "hello", role="worker", key=key, name="a", incarnation=0, address="x:1", epoch=0, step=0
        )
        assert client.is_closed()
    Worker(process, "a").welcomed()


def test_a_new_attempt_has_a_new_key_and_later_epochs(start: Start) -> None:
    env = {"SHOAL_JOB_UID": "u", "SHOAL_ATTEMPT": "1"}
    process = start("--minimum", "1", env=env)
    Worker(process, "a").welcomed().hear("view")
    former = process.key
    process.end()
    process = start("--minimum", "1", env={**env, "SHOAL_ATTEMPT": "2"})
    assert process.key != former
    worker = Worker(process, "a").welcomed()
    assert worker.incarnation == 2
    assert worker.hear("view")["view"]["epoch"] == 2
    process.end()
    with pytest.raises(AssertionError, match="attempt 2 of the job has begun; this is attempt 1"):
        start("--minimum", "1", env=env)


GARBAGE = {
    "no frame": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "no JSON": struct.pack(">I", 4) + b"\xff\xfe\x00{",
    "no object": struct.pack(">I", 2) + b"[]",
    "deep": struct.pack(">I", 200_000) + b"[" * 200_000,
    "too long": struct.pack(">I", (1 << 20) + 1),
    "a hello that is none": wire.encode(
        {"type": "hello", "role": "king", "name": "a", "incarnation": 1}
    ),
    "bytes without end": wire.encode({"type": "hello", "bytes": 1 << 40}),
    "zeros": b"\0" * 4096,
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_is_closed_and_hurts_nobody(start: Start, what: str) -> None:
    process = start("--minimum", "1")
    worker = Worker(process, "a").welcomed()
    worker.hear("view")
    worker.recovered(1)
    stranger = Client(process)
    with contextlib.suppress(OSError):
        stranger.connection.socket.sendall(GARBAGE[what])
    assert stranger.is_closed()
    Worker(process, "b").welcomed().hear("donor")


def test_misshapen_words_of_a_member_close_its_connection(start: Start) -> None:
    process = start("--minimum", "1")
    worker = Worker(process, "a").welcomed()
    worker.say("switched", epoch="three", step=1, cursor=[0, 0])
    assert worker.is_closed()
    assert process.child.poll() is None


def test_half_a_frame_is_waited_for_but_not_for_ever(start: Start) -> None:
    process = start("--minimum", "1")
    frame = wire.encode({"type": "hello", "role": "worker", "key": process.key, "name": "a",
                         "incarnation": 0, "address": "x:1", "epoch": 0, "step": -1})  # fmt: skip
    slow, dead = Client(process), Client(process)
    for byte in frame:
        slow.connection.socket.sendall(bytes([byte]))
    slow.hear("welcome")
    dead.connection.socket.sendall(frame[:10])
    assert dead.is_closed(10.0)


def test_a_flood_of_strangers_shuts_nobody_out(start: Start) -> None:
    """More connections than there may be: the oldest strangers make room, members stay."""
    process = start("--minimum", "1")
    worker = Worker(process, "a").welcomed()
    worker.hear("view")
    worker.recovered(1)
    host, port = wire.address_of(process.address)
    strangers: list[socket.socket] = []
    try:
        while len(strangers) < 2500:
            strangers.append(socket.create_connection((host, port), 5.0))
        joiner = Worker(process, "b").welcomed()
        joiner.hear("donor")
        assert worker.sidecar is not None
        worker.say("caught_up", step=1)
    finally:
        for sock in strangers:
            sock.close()
    assert process.child.poll() is None
    assert not worker.is_closed(0.2)


def test_a_reader_that_does_not_read_blocks_nobody(start: Start, baseline: Baseline) -> None:
    """It is told until its buffer is full, then closed; the others hear in time."""
    process = start("--minimum", "2")
    first, second = pair(process)
    data = "x" * 8000
    began = time.monotonic()
    while time.monotonic() - began < 30.0:
        try:
            for _ in range(50):
                first.say("blob", epoch=1, rank=0, data=data)
        except wire.Closed as error:
            raise AssertionError("the talker was closed, not the deaf") from error
        asked = time.monotonic()
        first.say("publish", epoch=9, manifest={})
        first.hear("refused")
        assert time.monotonic() - asked < baseline.allow(2.0)
        if second.is_closed_by_now():
            break
    assert second.is_closed_by_now()
    assert process.child.poll() is None


def test_a_job_without_its_record_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "record.db").write_bytes(b"this is no database, and it is long enough to say so" * 20)
    with pytest.raises(AssertionError, match="file is not a database"):
        Process(tmp_path, "--minimum", "1")


@pytest.mark.parametrize("point", ["record.saved", "view.saved", "join.saved", "address.written"])
def test_killed_after_a_durable_act(start: Start, point: str) -> None:
    """training-N1: whatever was kept is told by the next one; no epoch has two views."""
    once = {"SHOAL_FAULTS": f"coordinator.{point}:kill:{2 if point == 'record.saved' else 1}"}
    with contextlib.suppress(AssertionError, wire.Closed):
        process = start("--minimum", "1", env=once)
        Worker(process, "a").welcomed().hear("view")
    process = start("--minimum", "1")
    worker = Worker(process, "a").welcomed()
    view = worker.hear("view")["view"]
    assert [each["incarnation"] for each in view["members"]] == [worker.incarnation]
    assert view["epoch"] == (2 if point == "view.saved" else 1)
