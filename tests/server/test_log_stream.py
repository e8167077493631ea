"""Logs as clients read them: over real log files and a real server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from shoal.client import Client
from shoal.client.logs import LogRecord
from shoal.clock import SystemClock
from shoal.cluster.simulated import Script, SimulatedCluster
from shoal.history.base import LogKey
from shoal.objects.errors import Invalid, NotFound
from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from shoal.objects.node import Capacity
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.task import Placement, TaskSpec, task_name
from shoal.server import log_stream
from shoal.server.log_stream import LogQuery, LogStream
from shoal.store.base import SYSTEM
from shoal.testing.cluster import start_group
from tests.server.harness import LiveServer, a_job, eventually


class Scene:
    """A job whose tasks the test plays."""

    def __init__(self, server: LiveServer, client: Client) -> None:
        self.server = server
        self.client = client
        self.job = client.create(a_job())

    def key(self, index: int = 0, incarnation: int = 1, role: str = "worker") -> LogKey:
        meta = self.job.metadata
        return LogKey(
            namespace=meta.namespace, job=meta.name, job_uid=meta.uid, role=role, index=index,
            incarnation=incarnation,
        )  # fmt: skip

    def write(
        self, data: bytes, at: float = 0.0, *, index: int = 0, incarnation: int = 1, role: str = "worker"
    ) -> None:
        self.server.logs.append(self.key(index, incarnation, role), at or time.time(), data)

    def phase(self, phase: str) -> None:
        meta = self.job.metadata
        now = self.server.store.get(Job, meta.namespace, meta.name, actor=SYSTEM)
        self.server.store.patch_status(
            JOB, meta.namespace, meta.name, actor=SYSTEM, writer="job", uid=meta.uid,
            counter=now.status.writers.get("job", 0), fields={"phase": phase},
        )  # fmt: skip

    def read(self, **options: object) -> list[LogRecord]:
        return list(self.client.logs("default", "train", **options))  # type: ignore[arg-type]

    def text(self, **options: object) -> bytes:
        return b"".join(record.data for record in self.read(**options))


class Following:
    """A reader in a thread."""

    def __init__(self, scene: Scene, **options: object) -> None:
        self.records: list[LogRecord] = []
        self._reader = scene.client.logs("default", "train", follow=True, **options)  # type: ignore[arg-type]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for record in self._reader:
            self.records.append(record)

    @property
    def text(self) -> bytes:
        return b"".join(record.data for record in self.records)

    def ends(self) -> bytes:
        self._thread.join(20)
        assert not self._thread.is_alive(), "following does not end"
        return self.text


@pytest.fixture
def scene(server: LiveServer, client: Client) -> Scene:
    return Scene(server, client)


def test_a_job_without_tasks_has_no_logs(scene: Scene) -> None:
    assert scene.read() == []
    with pytest.raises(NotFound):
        scene.client.logs("default", "other")


def test_bytes_come_as_they_were_written(scene: Scene) -> None:
    raw = b"\xff\xfe\x00 not text \r\n\x1b[31m" + bytes(range(256))
    scene.write(raw)
    (record,) = scene.read()
    assert (record.data, record.role, record.index, record.incarnation) == (raw, "worker", 0, 1)


def test_tasks_come_in_the_order_of_writing(scene: Scene) -> None:
    start = time.time() - 100
    for step in range(6):
        scene.write(b"%d\n" % step, start + step, index=step % 2)
    assert scene.text() == b"0\n1\n2\n3\n4\n5\n"
    assert scene.text(index=1) == b"1\n3\n5\n"
    with pytest.raises(NotFound, match="no role ps"):
        scene.text(role="ps")
    with pytest.raises(NotFound, match="no task with index 2"):
        scene.text(index=2)


def test_the_newest_incarnation_or_the_one_before(scene: Scene) -> None:
    for incarnation in (1, 2, 10):
        scene.write(b"run %d\n" % incarnation, incarnation=incarnation)
    scene.write(b"only run\n", index=1)
    assert scene.text(index=0) == b"run 10\n"
    assert scene.text(previous=True) == b"run 2\n"
    with pytest.raises(NotFound, match="earlier start"):
        scene.read(previous=True, index=1)
    assert scene.text(incarnation=2) == b"run 2\n"
    with pytest.raises(NotFound, match="a log of a start 3"):
        scene.read(incarnation=3)
    for query in ({"previous": True}, {"incarnation": 2}):
        with pytest.raises(Invalid, match="cannot be followed"):
            scene.read(**query, follow=True)


def test_only_the_end_of_each_log(scene: Scene) -> None:
    for index in (0, 1):
        scene.write(b"".join(b"%d:%d\n" % (index, line) for line in range(50)), index=index)
    lines = scene.text(tail=2).splitlines()
    assert sorted(lines) == [b"0:48", b"0:49", b"1:48", b"1:49"]
    assert scene.text(tail=0) == b""


def test_only_what_is_young_enough(scene: Scene) -> None:
    now = time.time()
    scene.write(b"old\n", now - 1000)
    scene.write(b"young\n", now - 10)
    assert scene.text(since=now - 60) == b"young\n"


def test_what_is_missing_is_said(scene: Scene) -> None:
    scene.server.logs._max_segment_bytes, scene.server.logs._max_segments = 1000, 2
    for number in range(40):
        scene.write(b"%03d" % number * 33 + b"\n")
    records = scene.read()
    assert records[0].missing_bytes > 0
    assert records[0].missing_bytes + sum(len(record.data) for record in records) == 4000
    assert scene.read(tail=1)[0].missing_bytes == 0


def test_following_sees_what_comes_and_ends_with_the_job(scene: Scene) -> None:
    scene.write(b"before\n")
    reader = Following(scene)
    eventually(lambda: reader.text == b"before\n")
    scene.phase("Running")
    scene.write(b"after\n")
    eventually(lambda: reader.text == b"before\nafter\n")
    scene.write(b"another task\n", index=1)
    scene.write(b"again\n", incarnation=2)
    eventually(lambda: b"another task\n" in reader.text and b"again\n" in reader.text)
    scene.write(b"last words\n", incarnation=2)
    scene.phase("Failed")
    assert reader.ends().endswith(b"last words\n")


def test_following_from_now_on(scene: Scene) -> None:
    scene.write(b"before\n")
    scene.write(b"of another task\n", index=1)
    reader = Following(scene, tail=0)
    scene.write(b"after\n")
    eventually(lambda: reader.text == b"after\n")
    scene.phase("Succeeded")
    assert reader.ends() == b"after\n"


def test_following_a_job_that_is_deleted_ends(scene: Scene) -> None:
    scene.write(b"text\n")
    reader = Following(scene)
    eventually(lambda: bool(reader.records))
    scene.client.delete(JOB, "default", "train")
    assert reader.ends() == b"text\n"


@pytest.mark.slow
def test_following_goes_on_where_the_server_was_lost(scene: Scene) -> None:
    scene.write(b"one\n")
    reader = Following(scene)
    eventually(lambda: reader.text == b"one\n")
    scene.server.stop()
    scene.write(b"two\n")
    scene.write(b"another\n", index=1)
    scene.server.start()
    eventually(lambda: b"two\n" in reader.text and b"another\n" in reader.text)
    scene.write(b"three\n")
    scene.phase("Succeeded")
    assert sorted(reader.ends().splitlines()) == [b"another", b"one", b"three", b"two"]


@pytest.mark.slow
def test_a_tail_stays_a_tail_when_the_server_was_lost(scene: Scene) -> None:
    scene.write(b"old\n" * 100)
    reader = Following(scene, tail=1)
    eventually(lambda: reader.text == b"old\n")
    scene.server.stop()
    scene.server.start()
    scene.write(b"new\n")
    scene.phase("Succeeded")
    assert reader.ends() == b"old\nnew\n"


@pytest.mark.slow
def test_more_logs_than_can_be_open_at_once(scene: Scene) -> None:
    for index in range(200):
        scene.write(b"%d\n" % index, index=index)
    assert sorted(map(int, scene.text().split())) == list(range(200))


@pytest.mark.slow
def test_a_large_log_comes_whole(scene: Scene) -> None:
    piece = b"".join(b"%07d\n" % number for number in range(40_000))
    for _ in range(10):
        scene.write(piece)
    assert scene.text() == piece * 10


class Endless:
    """A log that grows whenever it is read, as a task's that writes without pause."""

    def __init__(self, key: LogKey, clock: SystemClock) -> None:
        self._key, self._clock = key, clock

    def keys(self, *_: object, **__: object) -> tuple[LogKey, ...]:
        return (self._key,)

    def read(self, key: LogKey, *, offset: int = 0, **_: object) -> Iterator[object]:
        from shoal.history.base import LogChunk

        while True:
            yield LogChunk(key=key, at=self._clock.now(), offset=offset, data=b"x" * 100_000)
            offset += 100_000


def test_a_plain_read_ends_though_the_task_writes_on(scene: Scene) -> None:
    clock = SystemClock()
    stream = LogStream(
        scene.job, LogQuery(), logs=Endless(scene.key(), clock), store=scene.server.store,
        tasks=lambda uid: None, clock=clock,
    )  # type: ignore[arg-type]  # fmt: skip
    deadline = time.monotonic() + 20
    while not stream.done:
        assert time.monotonic() < deadline
        assert sum(map(len, stream.step())) < 1_000_000  # a portion at a time


def spec_of(job: Job, index: int = 0) -> TaskSpec:
    meta = job.metadata
    return TaskSpec(
        namespace=meta.namespace, name=task_name(meta.name, meta.uid, "worker", index, 1),
        job=meta.name, job_uid=meta.uid, role="worker", index=index, attempt=1, incarnation=1,
        placement=Placement(node="n0"), command=("true",),
    )  # fmt: skip


def test_what_still_runs_of_a_finished_job_is_followed_to_its_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `cleanUp: None` the rest ends by itself; and logs of tasks that ended are let go of."""
    monkeypatch.setattr(log_stream, "_SETTLE_SECONDS", 0.05)
    clock = SystemClock()
    room = Capacity(cpu=CpuMillis(4000), memory=Bytes(2**30))
    cluster = SimulatedCluster(clock, {"n0": room}, lambda spec: Script())
    group = (spec_of(scene.job, 0), spec_of(scene.job, 1))
    start_group(cluster, group)
    stream = LogStream(
        scene.job, LogQuery(follow=True), logs=scene.server.logs, store=scene.server.store,
        tasks=lambda uid: cluster.list().tasks, clock=clock,
    )  # fmt: skip

    def steps_until(check: Callable[[], bool]) -> None:
        eventually(lambda: bool(stream.step() or True) and check())

    scene.write(b"a\n")
    scene.write(b"b\n", index=1)
    scene.phase("Succeeded")
    for _ in range(10):
        stream.step()
    assert not stream.done
    cluster.stop(group[0].key, grace_seconds=0, reason="JobFinished")
    steps_until(lambda: len(stream._closed) == 1)
    assert not stream.done
    cluster.stop(group[1].key, grace_seconds=0, reason="JobFinished")
    steps_until(lambda: stream.done)
    stream.close()


def test_positions_that_are_none_are_refused(scene: Scene) -> None:
    path = "/api/v1/namespaces/default/jobs/train/logs"
    with pytest.raises(Invalid, match="list of positions in logs is not valid"):
        scene.client.transport.request("POST", path, body=msgspec.json.encode({"positions": 3}))


def test_the_files_may_not_be_left(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("no")
    with pytest.raises(NotFound, match="no role"):
        scene.read(role="../../..")
