import sqlite3

import pytest
from msgspec import structs

from shoal.cluster.base import Outcome
from shoal.cluster.local import ledger as ledger_module
from shoal.cluster.local.ledger import FORGOTTEN_SECONDS, Ledger, Progress, Record, StopRequest
from shoal.objects.errors import Unavailable
from shoal.objects.quantities import CpuMillis
from shoal.objects.task import Endpoint, Placement, TaskBootstrap, TaskSpec


def spec(name="a", job_uid="uid", **fields):
    return TaskSpec(
        namespace="default", name=name, job="job", job_uid=job_uid, role="worker", index=0, attempt=1,
        incarnation=1, placement=Placement(node="n"), command=("true",), cpu=CpuMillis(500), **fields,
    )  # fmt: skip


def record(name="a", **fields):
    endpoint = Endpoint(role="worker", index=0, task=name, node="n", host="127.0.0.1", ports={"x": 1})
    return Record(spec=spec(name, **fields), progress=Progress(endpoint=endpoint, admitted=1.0))


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    yield ledger
    ledger.close()


def reopened(ledger, tmp_path):
    ledger.close()
    return Ledger(tmp_path / "ledger.db")


def test_what_is_committed_is_there_again(ledger, tmp_path):
    task = record(env={"A": "ü"})
    ledger.put(task)
    ledger.lease("owner", 20001)
    ledger.commit()
    task.bootstrap = TaskBootstrap(env={"RANK": "0"}, files={"hosts": "a\nb"})
    ledger.put(task)
    stop = StopRequest(reason="Cancelled", first=2.0, grace_seconds=30.0, at=2.0)
    outcome = Outcome(reason="Signalled", exit_code=143, signal=15, stop_reason="Cancelled")
    ledger.advance(
        task,
        Progress(
            endpoint=task.progress.endpoint, admitted=1.0, launched=True, stop=stop, outcome=outcome
        ),
    )
    ledger.commit()
    again = reopened(ledger, tmp_path)
    assert again.tasks == {task.key: task}
    assert again.leases == {"owner": 20001}
    again.close()


def test_what_is_not_committed_never_was(ledger, tmp_path):
    ledger.put(record())
    assert ledger.staged
    again = reopened(ledger, tmp_path)
    assert not again.tasks
    again.close()


def test_phases():
    task = record()
    first = task.progress
    assert (task.phase, task.holds_capacity, task.can_be_taken_back) == ("Admitted", True, True)
    task.progress = structs.replace(first, launched=True)
    assert (task.phase, task.can_be_taken_back) == ("Admitted", False)
    task.progress = running = structs.replace(first, launched=True, started=2.0)
    assert task.phase == "Running"
    stop = StopRequest(reason="Preempted", first=1.0, grace_seconds=1.0, at=1.0)
    task.progress = structs.replace(running, stop=stop)
    assert (task.phase, task.task().stop_reason) == ("Terminating", "Preempted")
    task.progress = structs.replace(running, outcome=Outcome(reason="Exited", exit_code=0))
    assert (task.phase, task.holds_capacity) == ("Ended", False)


def test_acknowledged_names_are_remembered_until_their_job_is_gone(ledger, tmp_path):
    task, other = record("a"), record("b", job_uid="other")
    ledger.put(task)
    ledger.put(other)
    ledger.commit()
    ledger.forget(task, 5.0)
    ledger.forget(other, 5.0)
    ledger.commit()
    ledger = reopened(ledger, tmp_path)
    assert ledger.forgotten == {task.key: ("uid", 5.0), other.key: ("other", 5.0)}
    ledger.forget_job("default", "uid")
    ledger.commit()
    ledger = reopened(ledger, tmp_path)
    assert ledger.forgotten == {other.key: ("other", 5.0)}
    ledger.trim(5.0 + FORGOTTEN_SECONDS + 1)
    ledger.commit()
    ledger = reopened(ledger, tmp_path)
    assert not ledger.forgotten
    ledger.close()


def test_only_so_many_names_are_remembered(ledger, tmp_path, monkeypatch):
    monkeypatch.setattr(ledger_module, "FORGOTTEN_MOST", 3)
    for number in range(6):
        task = record(f"task-{number}")
        ledger.put(task)
        ledger.forget(task, float(number))
    ledger.commit()
    again = reopened(ledger, tmp_path)
    assert [key.name for key in again.forgotten] == ["task-3", "task-4", "task-5"]
    again.close()


def test_a_commit_that_fails_leaves_memory_as_the_disk_has_it(ledger, tmp_path):
    kept = record("kept")
    ledger.put(kept)
    ledger.commit()
    page_count = ledger._database.execute("PRAGMA page_count").fetchone()[0]
    ledger._database.execute(f"PRAGMA max_page_count = {page_count}")  # SQLite's own "disk is full"
    ledger.put(record("lost", env={"X": "y" * 1_000_000}))
    ledger.advance(
        kept,
        Progress(endpoint=kept.progress.endpoint, admitted=1.0, launched=True),
    )
    with pytest.raises(Unavailable, match="full"):
        ledger.commit()
    assert list(ledger.tasks) == [kept.key]
    assert ledger.tasks[kept.key] is kept
    assert kept.phase == "Admitted"
    assert not ledger.staged
    ledger._database.execute("PRAGMA max_page_count = 1000000")
    ledger.put(record("now", env={"X": "y" * 1_000_000}))
    ledger.commit()
    assert len(reopened(ledger, tmp_path).tasks) == 2


def test_ends_can_be_recorded_on_a_full_disk(small_disk):
    ledger = Ledger(small_disk.path / "ledger.db")
    tasks = [record(f"task-{number}") for number in range(50)]
    for task in tasks:
        ledger.put(task)
    ledger.commit()
    small_disk.fill()
    stop = StopRequest(reason="Cancelled", first=1.0, grace_seconds=1.0, at=1.0)
    outcome = Outcome(reason="Exited", exit_code=0)
    for task in tasks:
        launched = structs.replace(task.progress, launched=True, stop=stop)
        ledger.advance(task, launched)
        ledger.commit()
        ledger.advance(task, structs.replace(launched, outcome=outcome))
        ledger.commit()
    with pytest.raises(Unavailable):
        for number in range(1000):
            ledger.put(record(f"large-{number}", env={"X": "y" * 10_000}))
            ledger.commit()
    ledger.close()
    again = Ledger(small_disk.path / "ledger.db")
    assert [again.tasks[task.key].phase for task in tasks] == ["Ended"] * 50
    again.close()


def test_only_the_owner_may_read_it(ledger, tmp_path):
    for name in ("ledger.db", "ledger.db-wal"):
        path = tmp_path / name
        if path.exists():
            assert path.stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_a_torn_write_is_not_seen(ledger, tmp_path):
    """The write-ahead log loses its tail, as on a machine that lost power."""
    for name in ("a", "b"):
        ledger.put(record(name))
        ledger.commit()
    log = (tmp_path / "ledger.db-wal").read_bytes()
    main = (tmp_path / "ledger.db").read_bytes()
    other = tmp_path / "torn"
    other.mkdir()
    for cut in range(0, len(log), len(log) // 40):
        (other / "ledger.db").write_bytes(main)
        (other / "ledger.db-wal").write_bytes(log[: len(log) - cut])
        for rest in other.glob("*-shm"):
            rest.unlink()
        torn = Ledger(other / "ledger.db")
        names = [key.name for key in torn.tasks]
        torn.close()
        assert names in ([], ["a"], ["a", "b"])


def test_it_is_sqlite_in_the_safest_mode(ledger, tmp_path):
    assert ledger._database.execute("PRAGMA synchronous").fetchone() == (2,)
    assert ledger._database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    other = sqlite3.connect(tmp_path / "ledger.db")
    assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    other.close()
