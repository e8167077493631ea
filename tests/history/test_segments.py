"""The files of a log: what is written is read back, whatever happens to the writer or the disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.history import segments
from shoal.history.segments import Reader, Writer


def text(reader: Reader, offset: int = 0, since: float = 0.0) -> bytes:
    return b"".join(data for _, _, data in reader.read(offset, since))


def files(directory: Path, suffix: str) -> list[Path]:
    return sorted(directory.glob(f"*.{suffix}"))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path / "log"))
    reader = Reader(str(tmp_path / "log"))
    assert (reader.start, reader.size, text(reader)) == (0, 0, b"")
    data = bytes(range(256)) * 3
    for at, byte in enumerate(data):
        writer.write(bytes([byte]), float(at))
    assert text(reader) == data  # while the writer is open
    assert text(reader, offset=100) == data[100:]
    assert reader.size == writer.offset == len(data)
    writer.close()
    writer.close()
    assert text(reader) == data


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    reader = Reader(str(tmp_path / "none"))
    assert (reader.start, reader.size, list(reader.read()), reader.tail_offset(3)) == (0, 0, [], 0)


def test_chunks_carry_times_to_a_tenth_of_a_second(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path))
    for at in (10.0, 10.05, 10.2, 30.0):
        writer.write(b"%.2f\n" % at, at)
    reader = Reader(str(tmp_path))
    assert list(reader.read()) == [
        (10.0, 0, b"10.00\n10.05\n"), (10.2, 12, b"10.20\n"), (30.0, 18, b"30.00\n"),
    ]  # fmt: skip
    assert list(reader.read(offset=14)) == [(10.2, 14, b".20\n"), (30.0, 18, b"30.00\n")]
    writer.close()


def test_since_misses_nothing(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path), max_segment_bytes=64, max_segments=100)
    for tick in range(500):
        writer.write(b"%04d\n" % tick, 1000.0 + tick * 0.07)
    writer.close()
    reader = Reader(str(tmp_path))
    assert len(files(tmp_path, "log")) > 30
    for since in (0.5, 1000.0, 1007.01, 1020.0, 1034.9, 1034.93):
        shown = [int(line) for line in text(reader, since=since).split()]
        wanted = [tick for tick in range(500) if 1000.0 + tick * 0.07 >= since]
        assert shown[len(shown) - len(wanted) :] == wanted
        assert len(shown) - len(wanted) <= 2  # and little more than was asked for
    assert text(reader, since=1036.0) == b""


def test_a_clock_set_back_is_held_until_it_has_caught_up(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path))
    for at in (100.0, 50.0, 60.0, 101.0):
        writer.write(b"x", at)
    writer.close()
    assert list(Reader(str(tmp_path)).read()) == [(100.0, 0, b"xxx"), (101.0, 3, b"x")]


def test_rotation_keeps_the_newest_and_shows_where_it_begins(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path), max_segment_bytes=100, max_segments=3)
    whole = b"".join(b"%09d\n" % line for line in range(1000))
    for at in range(0, len(whole), 70):
        writer.write(whole[at : at + 70], float(at))
    writer.close()
    reader = Reader(str(tmp_path))
    assert reader.size == len(whole)
    assert 200 <= reader.size - reader.start <= 300
    chunks = list(reader.read())
    assert chunks[0][1] == reader.start > 0
    assert text(reader) == whole[reader.start :]
    assert len(files(tmp_path, "log")) == len(files(tmp_path, "index")) == 3


def test_one_write_larger_than_everything_kept(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path), max_segment_bytes=1000, max_segments=2)
    data = os.urandom(7777)
    writer.write(data, 1.0)
    writer.close()
    reader = Reader(str(tmp_path))
    assert reader.size == 7777
    assert text(reader) == data[reader.start :]


@pytest.mark.slow
def test_tail_counts_lines_over_segments(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path), max_segment_bytes=7, max_segments=1000)
    lines = [b"a" * (number % 19) + b"\n" for number in range(200)]
    writer.write(b"".join(lines), 1.0)
    reader = Reader(str(tmp_path))
    for count in (0, 1, 2, 3, 50, 199, 200):
        assert text(reader, reader.tail_offset(count)) == b"".join(lines[200 - count :])
    assert reader.tail_offset(500) == 0
    writer.write(b"unfinished", 2.0)
    assert text(reader, reader.tail_offset(1)) == b"unfinished"
    assert text(reader, reader.tail_offset(2)) == lines[-1] + b"unfinished"
    writer.close()


def test_tail_within_large_blocks(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path))
    lines = [os.urandom(50_000).replace(b"\n", b" ") + b"\n" for _ in range(40)]
    writer.write(b"".join(lines), 1.0)
    writer.close()
    reader = Reader(str(tmp_path))
    for count in (1, 5, 6, 39, 40):
        assert text(reader, reader.tail_offset(count)) == b"".join(lines[40 - count :])


def test_a_later_writer_carries_on(tmp_path: Path) -> None:
    for part in range(5):
        writer = Writer(str(tmp_path), max_segment_bytes=10, max_segments=100)
        writer.write(b"part %d|" % part, 100.0 - part)
        writer.close()
    reader = Reader(str(tmp_path))
    assert text(reader) == b"part 0|part 1|part 2|part 3|part 4|"
    times = [at for at, _, _ in reader.read()]
    assert times == sorted(times)


@pytest.mark.parametrize(
    "torn", [b"\n17", b"\n104.000", b"\n104.000 00000000", b"\0\0\0\0", b"\n\xff\xfe x\n"]
)
def test_a_torn_index_line_is_ignored(tmp_path: Path, torn: bytes) -> None:
    writer = Writer(str(tmp_path))
    writer.write(b"one\n", 103.0)
    writer.close()
    with files(tmp_path, "index")[0].open("ab") as index:
        index.write(torn)
    assert list(Reader(str(tmp_path)).read()) == [(103.0, 0, b"one\n")]
    writer = Writer(str(tmp_path))
    writer.write(b"two\n", 105.0)
    writer.close()
    assert list(Reader(str(tmp_path)).read()) == [(103.0, 0, b"one\n"), (105.0, 4, b"two\n")]


def test_an_index_that_is_lost_costs_times_only(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path))
    writer.write(b"one\n", 103.0)
    writer.close()
    files(tmp_path, "index")[0].unlink()
    reader = Reader(str(tmp_path))
    assert text(reader) == text(reader, since=104.0) == b"one\n"


def test_a_segment_that_goes_while_it_is_read_is_a_gap(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path), max_segment_bytes=10, max_segments=100)
    writer.write(b"0123456789" * 3, 1.0)
    writer.close()
    chunks = Reader(str(tmp_path)).read()
    first = next(chunks)
    files(tmp_path, "log")[1].unlink()
    assert [first[1], *(offset for _, offset, _ in chunks)] == [0, 20]


def test_following_by_size(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path), max_segment_bytes=32, max_segments=100)
    reader = Reader(str(tmp_path))
    seen, offset = b"", 0
    for number in range(100):
        writer.write(b"line %d\n" % number, float(number))
        if reader.size > offset:
            for _, at, data in reader.read(offset):
                assert at == offset
                seen, offset = seen + data, at + len(data)
    writer.close()
    assert seen == b"".join(b"line %d\n" % number for number in range(100))


def test_the_folder_of_a_task_and_the_name_of_its_job(tmp_path: Path) -> None:
    root = str(tmp_path / "logs")
    assert segments.job_name(root, "team-a", "u1") == ""
    for incarnation in (1, 2):
        directory = segments.create(root, "team-a", "digits", "u1", "worker", 3, incarnation)
        assert directory == segments.task_directory(root, "team-a", "u1", "worker", 3, incarnation)
        assert Path(directory).is_dir()
    assert directory == f"{root}/team-a/u1/worker-3-2"
    assert segments.job_name(root, "team-a", "u1") == "digits"


def test_a_log_grows_until_its_writer_has_ended(tmp_path: Path) -> None:
    reader = Reader(str(tmp_path))
    assert (reader.growing, reader.last_at) == (False, 0.0)
    writer = Writer(str(tmp_path), max_segment_bytes=5)
    assert (reader.growing, reader.last_at) == (True, 0.0)
    writer.write(b"hello", 7.0)
    writer.write(b"world", 9.0)
    assert (reader.growing, reader.last_at) == (True, 9.0)
    writer.close()
    assert (reader.growing, reader.last_at) == (False, 9.0)


def test_a_full_disk_leaves_a_visible_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when and as long as the test says; see test_disk_full.py for a real one."""
    monkeypatch.setattr(segments, "RETRY_SECONDS", 0.0)
    writer = Writer(str(tmp_path))
    writer.write(b"kept\n", 1.0)
    real = os.write
    monkeypatch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space")))
    monkeypatch.setattr(segments, "RETRY_SECONDS", 60.0)
    writer.write(b"lost\n", 2.0)
    writer.write(b"lost too\n", 3.0)
    assert (writer.dropped_bytes, writer.offset) == (14, 19)
    assert writer.last_error is not None
    monkeypatch.setattr(os, "write", real)
    writer.close()
    reader = Reader(str(tmp_path))
    assert reader.size == 19  # what was lost at the end counts too
    writer = Writer(str(tmp_path))
    writer.write(b"again\n", 4.0)
    writer.close()
    assert list(reader.read()) == [(1.0, 0, b"kept\n"), (4.0, 19, b"again\n")]


def test_a_killed_writer_loses_nothing_it_accepted(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from shoal.history.segments import Writer\n"
        f"writer = Writer({str(tmp_path)!r}, 1000, 1000)\n"
        "number = 0\n"
        "while True:\n"
        "    number += 1\n"
        "    writer.write(b'%d\\n' % number, float(number))\n"
        "    print(number, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        accepted = 0
        while accepted < 2000:
            accepted = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
    accepted = int(rest[-1]) if rest else accepted
    numbers = [int(line) for line in text(Reader(str(tmp_path))).split()]
    assert numbers[:accepted] == list(range(1, accepted + 1))
    assert len(numbers) - accepted in (0, 1)


def test_the_module_needs_the_standard_library_only() -> None:
    source = Path(segments.__file__).parents[2]
    program = (
        f"import sys; sys.path.insert(0, {str(source)!r})\n"
        "import shoal.history.segments\n"
        "print(sorted(n for n in sys.modules if n in ('msgspec', 'pathlib', 'typing', 're', 'inspect')))"
    )
    command = [sys.executable, "-I", "-S", "-c", program]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == "[]\n"
