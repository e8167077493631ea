from __future__ import annotations

from pathlib import Path

import pytest

from shoal.history import segments
from shoal.history.base import LogKey, Logs
from shoal.history.files import FileLogs
from shoal.objects.errors import Invalid
from shoal.testing.history import LogsContract, log


class TestFileLogs(LogsContract):
    @pytest.fixture
    def logs(self, tmp_path: Path) -> Logs:
        return FileLogs(tmp_path / "logs")


def test_what_a_supervisor_writes_is_read(tmp_path: Path) -> None:
    directory = segments.create(str(tmp_path), "team-a", "digits", "u1", "worker", 0, 1)
    writer = segments.Writer(directory, 10, 3)
    writer.write(b"0123456789" * 5, 7.0)
    logs = FileLogs(tmp_path)
    assert logs.keys("team-a", "digits") == (log(),)
    chunks = list(logs.read(log()))
    assert chunks[0].offset == 20  # the rest was rotated away
    assert b"".join(chunk.data for chunk in chunks) == b"0123456789" * 3
    writer.close()


def test_a_log_that_grows_is_never_trimmed(tmp_path: Path) -> None:
    logs = FileLogs(tmp_path)
    directory = segments.create(str(tmp_path), "team-a", "digits", "u1", "worker", 0, 1)
    writer = segments.Writer(directory, 100, 3)
    writer.write(b"old and silent", 7.0)
    logs.append(log(index=1), 8.0, b"ended")
    assert logs.trim(0, 1.0, now=1e6) == 5
    assert logs.keys("team-a", "digits") == (log(),)
    writer.close()
    assert logs.trim(0, 1.0, now=1e6) == 14
    assert list(tmp_path.rglob("*.log")) == []
    assert not (tmp_path / "team-a" / "u1").exists()


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "/etc", "a\0b"])
def test_names_cannot_lead_out_of_the_root(tmp_path: Path, name: str) -> None:
    logs = FileLogs(tmp_path / "logs")
    for place in ({"namespace": name}, {"job_uid": name}, {"role": name}):
        key: LogKey = log(**place)
        with pytest.raises(Invalid):
            list(logs.read(key))
    with pytest.raises(Invalid):
        logs.forget("team-a", name)
    with pytest.raises(Invalid):
        logs.keys(name, "digits")


def test_other_files_are_left_out(tmp_path: Path) -> None:
    logs = FileLogs(tmp_path)
    logs.append(log(), 1.0, b"x")
    (tmp_path / "team-a" / "u1" / "notes").mkdir()
    (tmp_path / "team-a" / "unnamed").mkdir()
    (tmp_path / "team-a" / "file").touch()
    assert logs.keys("team-a", "digits") == (log(),)
