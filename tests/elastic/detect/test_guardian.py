"""The worker's side, inside a process of its own where it is forked or its descriptors are counted."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import timeit
from contextlib import closing

import pytest

from shoal.elastic.detect.guardian import Guardian
from shoal.elastic.wire import Message
from tests.elastic.detect.harness import Ear, sidecars_of, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_marking_progress_costs_less_than_a_microsecond() -> None:
    guardian = Guardian(name="worker-0", key="k", find=lambda: None)
    try:
        touch = min(timeit.repeat(guardian.touch, number=20_000, repeat=5)) / 20_000
        print(f"touch: {touch * 1e9:.0f} ns")
        assert touch < 1e-6
    finally:
        guardian.close()


def test_close_leaves_nothing() -> None:
    """Twenty guardians come and go, half of their sidecars killed: no process, no descriptor is left."""
    program = """
        import os, signal, threading, time
        from shoal.elastic.detect.guardian import Guardian

        def once(kill):
            guardian = Guardian(name="worker-0", key="k", find=lambda: None)
            pids = {guardian.sidecar_pid}
            if kill:
                os.kill(guardian.sidecar_pid, signal.SIGKILL)
                deadline = time.monotonic() + 10
                while guardian.sidecar_pid in pids and time.monotonic() < deadline:
                    time.sleep(0.001)
                pids.add(guardian.sidecar_pid)
                assert len(pids) == 2
            guardian.close()
            guardian.close()
            guardian.touch()
            guardian.training(False)
            for pid in pids:
                try:
                    os.kill(pid, 0)
                except ProcessLookupError:
                    continue
                raise AssertionError(f"{pid} is still there")

        once(False)
        before = sorted(os.listdir("/proc/self/fd"))
        for at in range(20):
            once(at % 2)
        assert sorted(os.listdir("/proc/self/fd")) == before, os.listdir("/proc/self/fd")
        assert threading.active_count() == 1
    """
    _run(program)


def test_close_while_the_sidecar_dies() -> None:
    """Whoever comes first, both ends are closed once and the process is reaped."""
    program = """
        import os, signal, sys
        from shoal.elastic.detect.guardian import Guardian

        for _ in range(20):
            guardian = Guardian(name="worker-0", key="k", find=lambda: None)
            os.kill(guardian.sidecar_pid, signal.SIGKILL)
            guardian.close()
        try:
            print(os.waitpid(-1, os.WNOHANG))
        except ChildProcessError:
            sys.exit(0)
        sys.exit(1)
    """
    _run(program)


def test_a_forked_child_does_not_speak_for_its_parent() -> None:
    ear = Ear()
    program = f"""
        import os, signal, sys
        from shoal.elastic.detect.guardian import Guardian

        guardian = Guardian(name="worker-0", key="k", find=lambda: "{ear.address}")
        guardian.joined(3)
        child = os.fork()
        if not child:
            guardian.joined(4)
            guardian.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(os.getpid(), flush=True)
        sys.stdin.readline()
        os.fork() or os.execvp("sleep", ["sleep", "30"])   # a helper that outlives the worker
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        _, hello = ear.wait("hello")
        assert hello["incarnation"] == 3
        assert len(sidecars_of(pid)) == 1
        process.kill()
    ear.wait("gone")
    wait_until(lambda: not sidecars_of(pid), "the sidecar lingers", seconds=5)
    assert ear.kinds() == ["hello", "gone"]
    ear.close()


def test_the_coordinator_is_looked_up_until_it_is_known() -> None:
    ear = Ear()
    answers: list[str | Exception | None] = [None, OSError("no such file"), ValueError("half a file")]

    def find() -> str | None:
        answer = answers.pop(0) if answers else ear.address
        if isinstance(answer, Exception):
            raise answer
        return answer

    guardian = Guardian(name="worker-0", key="k", find=find)
    try:
        guardian.joined(1)
        ear.wait("beat")
        assert ear.kinds() == ["hello"]
        assert not answers
    finally:
        guardian.close()
        ear.wait_closed()
        assert ear.kinds() == ["hello"]
        ear.close()


ENDS = {
    "sys.exit(0)": "done",
    "pass": "done",
    "sys.exit(3)": "it ended with exit code 3",
    "raise SystemExit(3)": "it ended with exit code 3",
    "raise SystemExit('no room')": "it ended with exit code 1",
    "raise OSError('no room')": "it ended with exit code 1",
    "os.fork() or sys.exit(5); os.wait()": "done",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_worker_has_finished_if_it_ends_with_exit_code_0(end: str) -> None:
    """However its script asks for the code; that of a forked child is not its own."""
    with closing(Ear()) as ear:
        _run(outcome({"type": "done", "step": 7, "cursor": [1, 0]}, end, ear.address), check=False)
        _, last = ear.wait("done" if ENDS[end] == "done" else "failed")
        assert last["step"] == 7
        assert last.get("error", "done") == ENDS[end]


def test_the_outcome_is_sent_again_when_the_connection_was_lost() -> None:
    """The worker and its connections are gone; a coordinator that comes back is sent what it lacks."""
    said = {"type": "failed", "step": 7, "samples": [], "epoch_of_data": 0, "error": "ValueError: x"}
    ear = Ear()
    port = ear.port
    ear.close()
    _run(outcome(said, "sys.exit(1)", ear.address), check=False)
    with closing(Ear(port)) as again:
        assert again.wait("failed")[1] == said


def outcome(message: Message, end: str, address: str) -> str:
    return f"""
        import os, sys
        from shoal.elastic.detect.guardian import Guardian

        guardian = Guardian(name="worker-0", key="k", find=lambda: "{address}")
        guardian.joined(3)
        guardian.end({message!r})
        {end}
    """


def _run(program: str, *, check: bool = True) -> None:
    subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)], check=check, timeout=90
    )
