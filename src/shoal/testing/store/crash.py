"""A writer that is killed: each acknowledged write is stored, and no write is stored in part."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from importlib import import_module

import pytest

from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from shoal.store.base import SYSTEM, Store
from shoal.testing.store.harness import DEADLINE_SECONDS, Rules, StoreHarness, job, needs, opened
from shoal.testing.store.status import patch

__all__ = ["CrashRules", "main"]

THREADS = 4


class CrashRules(Rules):
    """Rules of durability."""

    @needs("durable")
    def test_what_was_acknowledged_is_there_when_opened_again(self, harness: StoreHarness) -> None:
        with opened(harness) as store:
            made = [store.create(job(f"j{number}"), actor=SYSTEM) for number in range(10)]
            store.delete(JOB, "default", "j3", actor=SYSTEM)
            patched = patch(store, made[4], 0, {"phase": "Running"})
        with opened(harness) as store:
            found = {
                record.object.metadata.name: record for record in store.list(JOB, actor=SYSTEM).records
            }
            assert sorted(found) == [f"j{number}" for number in range(10) if number != 3]
            assert found["j5"].object == made[5]
            assert found["j4"] == patched

    @pytest.mark.slow
    @pytest.mark.process
    @needs("durable")
    def test_a_process_killed_in_mid_write_loses_nothing_acknowledged(
        self, harness: StoreHarness
    ) -> None:
        seed = random.randrange(1 << 30)
        print(f"seed {seed}")  # noqa: T201  shown when it fails
        choice = random.Random(seed)
        acknowledged: dict[str, tuple[str, str]] = {}
        for life in range(3):
            acknowledged |= _write_until_killed(harness, life, choice.randrange(50, 400))
            with opened(harness) as store:
                _check(store, acknowledged)
                store.create(job(f"after-{life}"), actor=SYSTEM)


def main(opener: str, argument: str, life: str) -> None:
    """The process that is killed: writes from several threads, one line for each acknowledgement."""
    module, _, function = opener.partition(":")
    store: Store = getattr(import_module(module), function)(argument)
    threads = [threading.Thread(target=_write, args=(store, f"{life}-{n}")) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _write(store: Store, prefix: str) -> None:
    for number in range(1_000_000):
        made = store.create(job(f"j-{prefix}-{number}"), actor=SYSTEM)
        _say(made.metadata.name, made.metadata.uid, "created")
        if number % 2:
            patch(store, made, 0, {"message": "patched"})
            _say(made.metadata.name, made.metadata.uid, "patched")
        if number % 5 == 4:
            store.delete(JOB, "default", made.metadata.name, actor=SYSTEM)
            _say(made.metadata.name, made.metadata.uid, "deleted")


def _say(name: str, uid: str, what: str) -> None:
    os.write(1, f"{name} {uid} {what}\n".encode())  # one write: lines of threads do not mix


def _write_until_killed(harness: StoreHarness, life: int, lines: int) -> dict[str, tuple[str, str]]:
    """Name to (uid, last thing acknowledged), read until the pipe ends."""
    code = "import sys; from shoal.testing.store.crash import main; main(*sys.argv[1:])"
    command = [sys.executable, "-c", code, *harness.command(), str(life)]
    found: dict[str, tuple[str, str]] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        timer = threading.Timer(DEADLINE_SECONDS, process.kill)
        timer.start()
        assert process.stdout is not None
        for count, line in enumerate(process.stdout):
            if count == lines:
                process.send_signal(signal.SIGKILL)
            if line.endswith(b"\n"):
                name, uid, what = line.decode().split()
                found[name] = (uid, what)
        timer.cancel()
    assert process.returncode == -signal.SIGKILL
    assert len(found) > lines // 4
    return found


def _check(store: Store, acknowledged: dict[str, tuple[str, str]]) -> None:
    jobs: dict[str, Job] = {
        record.object.metadata.name: record.object for record in store.list(JOB, actor=SYSTEM).records
    }
    for name, (uid, what) in acknowledged.items():
        if what == "deleted":
            assert name not in jobs
            continue
        # the step after the one acknowledged may have been stored too, and its answer lost
        if name not in jobs:
            assert int(name.rpartition("-")[2]) % 5 == 4, f"{name} was {what} and is gone"
            continue
        assert jobs[name].metadata.uid == uid
        if what == "patched":
            assert jobs[name].status.message == "patched"
