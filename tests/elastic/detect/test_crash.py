"""A worker that crashes in C code: what it says is told to people, and at which samples to the job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from shoal.elastic.detect import crash
from tests.elastic.detect.harness import Ear, worker

AT = """
from shoal.elastic.detect.progress import Where
guardian.at(Where(step=9, epoch=2, first=32, end=48))
"""


@pytest.fixture
def ear() -> Iterator[Ear]:
    ear = Ear()
    yield ear
    ear.close()


@pytest.mark.process
@pytest.mark.slow
def test_a_crash_is_told_with_its_samples_instead_of_the_end(ear: Ear) -> None:
    body = AT + "sys.stdin.readline()\ndef decode():\n    ctypes.string_at(0)\ndecode()\n"
    with worker(ear, body) as one:
        one.say()
        _, failed = ear.wait("failed")
        assert failed["samples"] == [[32, 48]]
        assert (failed["step"], failed["epoch_of_data"]) == (9, 2)
        assert failed["error"].startswith("it crashed: Segmentation fault, in ")
        assert "decode" in one.end() or "string_at" in failed["error"]
        assert ear.kinds() == ["hello", "failed"]


@pytest.mark.process
@pytest.mark.slow
def test_an_end_from_outside_is_no_crash(ear: Ear) -> None:
    with worker(ear, AT + "sys.stdin.readline()") as one:
        one.signal(signal.SIGKILL)
        ear.wait("gone")
        assert ear.kinds() == ["hello", "gone"]


@pytest.mark.process
@pytest.mark.slow
def test_the_crash_of_a_forked_child_is_not_the_workers(ear: Ear) -> None:
    """A data loader's process, say: its parent hears of it by itself."""
    body = (
        AT
        + """
if os.fork() == 0:
    ctypes.string_at(0)
print("forked", flush=True)
os.wait()
print("waited", flush=True)
sys.stdin.readline()
"""
    )
    with worker(ear, body) as one:
        assert [one.line(), one.line()] == ["forked\n", "waited\n"]
        one.signal(signal.SIGKILL)
        ear.wait("gone")
        assert ear.kinds() == ["hello", "gone"]


def test_who_has_set_up_something_else_is_left_alone() -> None:
    program = """
        import faulthandler, os, sys
        from shoal.elastic.detect import crash
        faulthandler.enable(file=sys.stdout)
        memory = os.memfd_create("x")
        assert not crash.watch(memory)
        faulthandler.disable()
        assert crash.watch(memory)
        assert crash.report(memory) == ""
    """
    environment = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONFAULTHANDLER", "PYTHONDEVMODE")
    }
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60, env=environment
    )


def test_a_summary_is_one_line() -> None:
    frames = '  File "a.py", line 3 in f\n  File "b.py", line 4 in g\n'
    words = f"Fatal Python error: Aborted\n\nCurrent thread (most recent call first):\n{frames}"
    assert crash.summary(words) == "Aborted, in f (a.py:3)"
    assert crash.summary("something else") == "a fatal signal"
