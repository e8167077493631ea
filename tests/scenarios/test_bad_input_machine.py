"""The machine itself misbehaves: its disk fills up, its clock is set back, a port is somebody else's."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client import Client
from shoal.objects.kinds import JOB
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.testing.local import nodes, wait_until
from tests.scenarios.standing import PATIENCE_SECONDS, Standing, role, run_cli
from tests.support.require import require

pytestmark = [pytest.mark.process, pytest.mark.slow]

NODE = {"one": {"cpu": CpuMillis(4000), "memory": Bytes(2 << 30)}}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=64m", "shoal-small", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        require("mount", f"a small disk needs mount: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_loses_nothing_and_is_said(small_disk: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with Standing(small_disk / "home", nodes(**NODE)) as standing:
        there = {"workingDirectory": str(outside)}
        ticks = standing.job(role("while :; do echo >> ticks; sleep 0.1; done", **there))
        ends = standing.job(role("until test -e now; do sleep 0.05; done; exit 5", **there))
        filler = standing.job(
            role("cat /dev/zero > $SHOAL_SCRATCH/full; touch full; exec sleep 600", **there)
        )
        for job in (ticks, ends, filler):
            standing.running(job)
        pids = [standing.local.pid(name) for name in ("server", "one")]
        wait_until((outside / "full").exists, PATIENCE_SECONDS, "the disk is full")

        listed = standing.cli("get", "jobs")
        assert listed.code == 0, listed.err
        assert listed.out.count(b"Running") == 3, "what was stored stays readable"
        for _ in range(20):
            refused = standing.cli("run", "-d", "--", "true")
            if refused.code:
                break
        told = refused.refused(6)
        assert "no space" in told or "full" in told, told
        assert standing.cli("cancel", f"job/{filler.metadata.name}").code == 0
        (outside / "now").touch()
        wait_until(lambda: _ended(standing, ends), PATIENCE_SECONDS, "the task has ended on its node")
        before = (outside / "ticks").stat().st_size
        wait_until(lambda: (outside / "ticks").stat().st_size > before, what="the bystander gets on")

        cancelled = standing.finished(filler)
        assert cancelled.status.phase == "Cancelled", "its end makes room for all others"
        ended = standing.finished(ends)
        assert (ended.status.phase, ended.status.exit_code) == ("Failed", 5), "no exit code is lost"
        again = standing.cli("run", "--", "sh", "-c", "exit 9")
        assert again.code == 9, again.err
        now = standing.look(ticks)
        assert (now.status.phase, now.status.attempt) == ("Running", 1)
        assert [standing.local.pid(name) for name in ("server", "one")] == pids


def _ended(standing: Standing, job) -> bool:
    return all(task.phase == "Ended" for task in standing.tasks(job))


CLOCK = """
import os, time
_path, _real = os.environ.get("SHOAL_TEST_CLOCK", ""), time.time
def _shifted():
    try:
        with open(_path) as file:
            return _real() + float(file.read() or 0)
    except OSError:
        return _real()
if _path:
    time.time = _shifted
    time.time_ns = lambda: int(_shifted() * 1e9)
"""
"""A `sitecustomize` that shifts the wall clock of server and agents by what a file says."""


def path_with(site: Path) -> str:
    return os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))


def test_a_clock_that_is_set_back_ends_nothing_early_and_nothing_late(tmp_path: Path) -> None:
    site, shift = tmp_path / "site", tmp_path / "shift"
    site.mkdir()
    (site / "sitecustomize.py").write_text(CLOCK)
    shift.write_text("0")
    environment = {"PYTHONPATH": path_with(site), "SHOAL_TEST_CLOCK": str(shift)}
    with Standing(tmp_path / "home", nodes(**NODE), environment=environment) as standing:
        stay = role("exec sleep 600")
        bystander = standing.job(stay, limits={"idleTimeout": "1h"})
        limited = standing.job(stay, limits={"wallTime": "4s"})
        deaf = standing.job(role("trap '' TERM; while :; do sleep 1; done"), gracePeriod="2s")
        backing_off = standing.job(role("exit 1"), restart={"limit": 1, "backoff": "4s"})
        kept = standing.job(role("true"), ttlAfterFinished="4s")
        for job in (bystander, limited, deaf):
            standing.running(job)
        standing.until(backing_off, lambda j: j.status.failures == 1)
        standing.finished(kept)
        standing.client.cancel("default", deaf.metadata.name)
        begin = time.monotonic()
        shift.write_text("-7200")

        assert standing.finished(standing.job(role("true"))).status.phase == "Succeeded"
        assert standing.finished(deaf).status.phase == "Cancelled"
        assert standing.finished(limited).status.reason == "WallTimeExceeded"
        assert standing.finished(backing_off).status.failures == 2
        standing.until_gone(JOB, "default", kept.metadata.name)
        assert time.monotonic() - begin < 20.0, "all of that is due within four seconds"
        wait_until(
            lambda: all(task.idle_since for task in standing.tasks(bystander)),
            PATIENCE_SECONDS,
            "the node sees that the bystander does nothing",
        )
        now = standing.look(bystander)
        assert (now.status.phase, now.status.attempt) == ("Running", 1)


def test_a_restart_after_the_clock_was_set_back_waits_for_nothing_in_the_future(tmp_path: Path) -> None:
    """Stamps that an earlier server wrote lie in the future then: none may be waited for."""
    site, shift = tmp_path / "site", tmp_path / "shift"
    site.mkdir()
    (site / "sitecustomize.py").write_text(CLOCK)
    shift.write_text("0")
    environment = {"PYTHONPATH": path_with(site), "SHOAL_TEST_CLOCK": str(shift)}
    with Standing(tmp_path / "home", nodes(**NODE), environment=environment) as standing:
        limited = standing.job(role("exec sleep 600"), limits={"wallTime": "5s"})
        backing_off = standing.job(role("exit 1"), restart={"limit": 1, "backoff": "3s"})
        kept = standing.job(role("true"), ttlAfterFinished="3s")
        bystander = standing.job(role("exec sleep 600"))
        for job in (limited, bystander):
            standing.running(job)
        standing.until(backing_off, lambda j: j.status.failures == 1)
        standing.finished(kept)
        shift.write_text("-7200")
        for component in ("server", "one"):
            standing.local.kill(component)
        standing.local.up()
        begin = time.monotonic()
        new = standing.finished(standing.job(role("true")))
        assert new.status.phase == "Succeeded"
        assert new.metadata.created < limited.metadata.created - 7000, "the clock was really set back"
        assert standing.finished(backing_off).status.failures == 2
        assert standing.finished(limited).status.reason == "WallTimeExceeded"
        standing.until_gone(JOB, "default", kept.metadata.name)
        assert time.monotonic() - begin < 30.0
        now = standing.look(bystander)
        assert (now.status.phase, now.status.attempt) == ("Running", 1)


def test_an_address_that_is_taken_is_said_and_not_remembered(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        address = f"127.0.0.1:{stranger.getsockname()[1]}"
        words = [sys.executable, "-P", "-m", "shoal.server", "--home", str(home), "--listen", address]
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
        assert address in done.stderr, done.stderr
        assert "in use" in done.stderr, done.stderr
        try:
            up = run_cli(home, "up", "--nodes", "1")
            assert up.code == 0, up.err
            with Client.connect(home) as client:
                assert client.readiness().ready or client.version().pid
        finally:
            assert run_cli(home, "down", "-y").code == 0
