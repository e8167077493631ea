from __future__ import annotations

from pathlib import Path

import pytest

from shoal.control.scheduling import DecisionFiles, recorded
from shoal.objects import codec
from shoal.objects.errors import Invalid
from shoal.schedule.decide import decide
from shoal.schedule.plan import Policy
from shoal.schedule.record import Record, again, read
from tests.schedule.world import NOW, Job, gang, node, snapshot


def a_record(now: float = NOW) -> Record:
    seen = snapshot([node("n")], [Job("j", gang(2)), Job("k", gang(3))])
    return Record(now=now, snapshot=seen, plan=decide(seen, Policy(), now))


def test_the_newest_are_kept_and_come_out_the_same(tmp_path: Path):
    files = DecisionFiles(tmp_path / "decisions", lambda: 3)
    for number in range(5):
        files.record(a_record(NOW + number))
    paths = recorded(tmp_path / "decisions")
    assert [read(path.name, path.read_bytes()).now for path in paths] == [NOW + 2, NOW + 3, NOW + 4]
    plan, same = again(read("x", paths[0].read_bytes()))
    assert same
    assert plan == a_record(NOW + 2).plan


def test_none_are_kept_where_nobody_wants_any(tmp_path: Path):
    DecisionFiles(tmp_path / "decisions", lambda: 0).record(a_record())
    assert not (tmp_path / "decisions").exists()


def test_a_disk_that_cannot_be_written_is_told_once_and_stops_nothing(tmp_path: Path, caplog):
    blocked = tmp_path / "decisions"
    blocked.write_text("in the way")
    files = DecisionFiles(blocked, lambda: 3)
    files.record(a_record())
    files.record(a_record())
    assert [record.message.split(":")[0] for record in caplog.records] == [
        f"decisions cannot be recorded in {blocked}"
    ]


def test_a_plan_that_comes_out_otherwise_is_seen():
    record = a_record()
    other = Record(now=NOW + 1, snapshot=record.snapshot, plan=decide(record.snapshot, Policy(), NOW))
    assert again(other)[1] is (again(record)[0] == decide(record.snapshot, Policy(), NOW + 1))
    without = Record(now=NOW, snapshot=record.snapshot, plan=type(record.plan)())
    assert not again(without)[1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"nothing", "is no recorded decision"),
        (b"{}", "is no recorded decision"),
        (b'{"now": 1, "snapshot": 3, "plan": {}}', "is no recorded decision"),
        (
            b'{"version": 9, "now": 1, "snapshot": {}, "plan": {}}',
            "was recorded by version 9 of the rows",
        ),
    ],
)
def test_what_is_no_record_is_refused_by_name(content: bytes, said: str):
    with pytest.raises(Invalid, match=said) as caught:
        read("some.json", content)
    assert caught.value.message.startswith("some.json")


def test_a_snapshot_of_another_version_is_refused():
    record = a_record()
    text = codec.encode(record).replace(b'"snapshot":{', b'"snapshot":{"version":7,')
    with pytest.raises(ValueError, match="made by version 7 of the rows; this is version 1"):
        again(read("x", text))
