"""Real workers with real sidecars, and a coordinator's ear at the other end of a socket."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import shoal
from tests.elastic.detect.harness import KEY, Ear, sidecars_of, wait_until, worker, write_address
from tests.elastic.machine import Baseline

pytestmark = [pytest.mark.process, pytest.mark.slow]

IDLE = "sys.stdin.readline()"
BUSY = """
guardian.training(True)
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    guardian.touch()
    time.sleep(0.01)
"""


@pytest.fixture
def ear() -> Iterator[Ear]:
    ear = Ear()
    yield ear
    ear.close()


def test_hello_and_beats(ear: Ear, baseline: Baseline) -> None:
    with worker(ear, IDLE):
        _, hello = ear.wait("hello")
        assert hello == {
            "type": "hello", "role": "sidecar", "key": KEY, "name": "worker-0", "incarnation": 7
        }  # fmt: skip
        first, _ = ear.wait("beat", where=lambda beat: beat["seq"] == 1)
        tenth, beat = ear.wait("beat", where=lambda beat: beat["seq"] == 10)
        assert beat["late_seconds"] >= 0.0
        assert 0.7 < tenth - first < baseline.allow(5.0)


def test_gone_is_told_at_once_and_the_sidecar_ends(baseline: Baseline) -> None:
    latencies: list[float] = []
    for _ in range(5):
        ear = Ear()
        with worker(ear, BUSY) as one:
            killed = one.signal(signal.SIGKILL)
            told, _ = ear.wait("gone")
            latencies.append((told - killed) * 1000)
            ear.wait_closed()
            wait_until(lambda one=one: not sidecars_of(one.pid), "the sidecar lingers")
        assert ear.kinds() == ["hello", "gone"]
        ear.close()
    print(f"gone told after {sorted(round(each, 1) for each in latencies)} ms")
    assert statistics.median(latencies) < baseline.allow(0.1) * 1000


def test_stopped_and_continued(ear: Ear, baseline: Baseline) -> None:
    with worker(ear, BUSY) as one:
        stopped = one.signal(signal.SIGSTOP)
        told, _ = ear.wait("stopped")
        continued = one.signal(signal.SIGCONT)
        told_again, _ = ear.wait("continued")
        print(f"stopped told after {(told - stopped) * 1000:.0f} ms,", end=" ")
        print(f"continued after {(told_again - continued) * 1000:.0f} ms")
        assert told - stopped < baseline.allow(1.0)
        assert ear.kinds() == ["hello", "stopped", "continued"]


def test_gone_while_stopped(ear: Ear) -> None:
    with worker(ear, BUSY) as one:
        one.signal(signal.SIGSTOP)
        ear.wait("stopped")
        one.signal(signal.SIGKILL)
        ear.wait("gone")
        assert ear.kinds() == ["hello", "stopped", "gone"]


def test_coordinator_comes_back_elsewhere(ear: Ear, tmp_path: Path) -> None:
    file = tmp_path / "coordinator.json"
    write_address(file, ear.address)
    with worker(ear, BUSY, file=file) as one:
        one.signal(signal.SIGSTOP)
        ear.wait("stopped")
        other = Ear()
        ear.close()
        write_address(file, other.address)
        other.wait("hello")
        other.wait("stopped")
        os.kill(one.pid, signal.SIGKILL)
        other.wait("gone")
        other.close()


def test_a_sidecar_that_dies_is_started_again(ear: Ear) -> None:
    with worker(ear, BUSY) as one:
        began = time.monotonic()
        os.kill(one.sidecar, signal.SIGKILL)
        again, hello = ear.wait("hello", 2)
        print(f"a new sidecar said hello after {(again - began) * 1000:.0f} ms")
        assert hello["incarnation"] == 7
        assert "gone" not in ear.kinds()
        one.signal(signal.SIGKILL)
        ear.wait("gone")


def test_a_worker_whose_interpreter_is_held_for_two_seconds_is_no_news(
    ear: Ear, baseline: Baseline
) -> None:
    held = """
    guardian.training(True)
    sys.stdin.readline()
    ctypes.PyDLL(None).sleep(2)
    print("done", flush=True)
    sys.stdin.readline()
    """
    with worker(ear, held) as one:
        _, before = ear.wait("beat")
        one.say()
        assert one.line() == "done\n"
        _, after = ear.wait("beat", where=lambda beat: beat["seq"] >= before["seq"] + 15)
        assert ear.kinds() == ["hello"]
        assert after["late_seconds"] < baseline.allow(1.0)
        assert one.process.poll() is None


def test_a_hang_that_holds_the_interpreter_is_told_and_ended(ear: Ear) -> None:
    """training-V1: ended by the hard timeout, from outside the process."""
    hang = """
    guardian.training(True)
    print("hanging", flush=True)
    ctypes.PyDLL(None).sleep(3600)
    """
    with worker(ear, hang, max_stall=1.0) as one:
        one.line()
        began = time.monotonic()
        stalled, message = ear.wait("stalled")
        gone, _ = ear.wait("gone")
        print(f"stalled after {stalled - began:.2f} s, gone after {gone - began:.2f} s")
        assert 1.0 <= message["seconds"] < 1.5
        assert ear.kinds() == ["hello", "stalled", "gone"]
        sentence = one.end()
        assert one.process.returncode == -signal.SIGKILL
        assert sentence == "shoal: worker-0 made no progress for 1 s (max_stall) and was ended.\n"


def test_a_worker_that_waits_for_others_is_not_stalled(ear: Ear) -> None:
    waits = """
    guardian.training(True)
    guardian.touch()
    guardian.training(False)
    print("waiting", flush=True)
    ctypes.PyDLL(None).sleep(2)
    print("done", flush=True)
    """
    with worker(ear, waits, max_stall=0.5) as one:
        one.line()
        assert one.line() == "done\n"
        ear.wait("gone")
        assert ear.kinds() == ["hello", "gone"]
        assert one.end() == ""
        assert one.process.returncode == 0


def test_a_stalled_worker_that_still_answers_has_as_long_again(ear: Ear) -> None:
    slow = """
    guardian.training(True)
    time.sleep(1.5)   # more than max_stall, less than twice
    guardian.touch()
    print("alive", flush=True)
    guardian.training(False)
    sys.stdin.readline()
    """
    with worker(ear, slow, max_stall=1.0) as one:
        ear.wait("stalled")
        assert one.line() == "alive\n"
        assert ear.kinds() == ["hello", "stalled"]
        assert one.process.poll() is None


def test_evidence_waits_for_a_coordinator_that_was_not_there(ear: Ear) -> None:
    """The worker ends while nobody listens; who then listens at the same port hears of it."""
    with worker(ear, BUSY) as one:
        port = ear.port
        ear.close()
        one.signal(signal.SIGKILL)
        one.process.wait(10)
        time.sleep(0.5)  # what is tested is that the sidecar tries for longer than a moment
        assert sidecars_of(one.pid) == [one.sidecar]
        began = time.monotonic()
        again = Ear(port)
        told, _ = again.wait("gone")
        print(f"told {(told - began) * 1000:.0f} ms after it was back")
        again.wait_closed()
        wait_until(lambda: not sidecars_of(one.pid), "the sidecar lingers")
        assert again.kinds() == ["hello", "gone"]
        again.close()


def test_another_incarnation_is_another_hello(ear: Ear) -> None:
    rejoins = """
    sys.stdin.readline()
    guardian.joined(9)
    sys.stdin.readline()
    """
    with worker(ear, rejoins) as one:
        one.say()
        _, hello = ear.wait("hello", 2)
        assert hello["incarnation"] == 9
        ear.wait_closed()
        os.kill(one.sidecar, signal.SIGKILL)
        _, hello = ear.wait("hello", 3)
        assert hello["incarnation"] == 9


def test_worker_and_sidecar_killed_together_close_both_connections(ear: Ear) -> None:
    joined = f"""
    import socket
    own = socket.create_connection(("127.0.0.1", {ear.port}))
    print("connected", flush=True)
    sys.stdin.readline()
    """
    with worker(ear, joined) as one:
        one.line()
        os.kill(one.sidecar, signal.SIGSTOP)  # it must not have the time to tell
        killed = one.signal(signal.SIGKILL)
        os.kill(one.sidecar, signal.SIGKILL)
        closed = ear.wait_closed(2)
        print(f"both connections closed after {(closed - killed) * 1000:.1f} ms")
        assert ear.kinds() == ["hello"]


def test_signals_of_a_terminal_or_a_stop_do_not_reach_it(ear: Ear) -> None:
    with worker(ear, BUSY) as one:
        assert os.getsid(one.sidecar) == one.sidecar
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(one.sidecar, number)
        _, beat = ear.wait("beat")
        ear.wait("beat", where=lambda other: other["seq"] > beat["seq"] + 3)
        assert ear.kinds() == ["hello"]


def test_it_holds_nothing_that_the_worker_left_open(ear: Ear, tmp_path: Path) -> None:
    """A socket without close-on-exec (gloo's are) would outlive the worker in its sidecar."""
    inherits = """
    descriptor = os.open(sys.executable, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    print("open", flush=True)
    sys.stdin.readline()
    """
    with worker(ear, inherits) as one:
        one.line()
        os.kill(one.sidecar, signal.SIGKILL)
        ear.wait("hello", 2)
        (sidecar,) = sidecars_of(one.pid)
        held = sorted(str(each.readlink()) for each in Path(f"/proc/{sidecar}/fd").iterdir())
        print(held)
        assert not [each for each in held if "python" in each]
        assert sum(each.startswith("socket:") for each in held) == 2


def test_who_is_refused_does_not_hammer(ear: Ear) -> None:
    """Another key: the coordinator closes at once, and the sidecar comes back ever more slowly."""
    with worker(ear, IDLE):
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            ear.drop()
            time.sleep(0.001)
        hellos = ear.kinds().count("hello")
        print(f"{hellos} connections in 1.5 s")
        assert 3 <= hellos <= 20


def test_what_it_costs(ear: Ear) -> None:
    """Under 15 MiB resident, under a percent of a core, and a start of tens of milliseconds."""
    with worker(ear, BUSY) as one:
        pid = one.sidecar
        ear.wait("beat", where=lambda beat: beat["seq"] == 5)
        before = _cpu_seconds(pid)
        began = time.monotonic()
        ear.wait("beat", where=lambda beat: beat["seq"] == 25)
        share = (_cpu_seconds(pid) - before) / (time.monotonic() - began)
        status = Path(f"/proc/{pid}/status").read_text()
        resident = int(next(each for each in status.splitlines() if each.startswith("VmRSS")).split()[1])
        modules = {each.split("/")[-1] for each in Path(f"/proc/{pid}/maps").read_text().split()}
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        again, _ = ear.wait("hello", 2)
        print(f"{resident} KiB, {share:.2%} of a core,", end=" ")
        print(f"hello {(again - began) * 1000:.0f} ms after the kill")
        assert resident < 15 * 1024
        assert share < 0.02
        assert not [each for each in modules if "torch" in each or "numpy" in each]


def _cpu_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def test_it_says_how_late_it_is_itself(ear: Ear) -> None:
    """A sidecar that was not run for half a second: the next beat says so, and blames nobody."""
    with worker(ear, BUSY, max_stall=0.3) as one:
        ear.wait("beat")
        os.kill(one.sidecar, signal.SIGSTOP)
        one.signal(signal.SIGSTOP)
        time.sleep(0.6)  # the time that both are stopped is what is tested
        one.signal(signal.SIGCONT)
        os.kill(one.sidecar, signal.SIGCONT)
        _, late = ear.wait("beat", where=lambda beat: beat["late_seconds"] > 0.3)
        ear.wait("beat", where=lambda beat: beat["seq"] > late["seq"] + 3)
        assert "stalled" not in ear.kinds()


def test_a_worker_that_becomes_another_program_is_gone(ear: Ear) -> None:
    with worker(ear, 'sys.stdin.readline(); os.execvp("sleep", ["sleep", "30"])') as one:
        one.say()
        ear.wait("gone")
        wait_until(lambda: not sidecars_of(one.pid), "the sidecar lingers")
        assert ear.kinds() == ["hello", "gone"]


def test_a_coordinator_that_talks_nonsense_is_left_and_tried_again(ear: Ear) -> None:
    with worker(ear, IDLE):
        ear.connections[0].socket.sendall(b"\xff\xff\xff\xff nonsense")
        ear.wait("hello", 2)
        ear.connections[1].socket.sendall(b"\x00\x00\x00\x02[]")
        ear.wait("hello", 3)
        ear.say("worker-0", {"type": "something from a later version"})
        _, beat = ear.wait("beat", 5)
        ear.wait("beat", where=lambda other: other["seq"] > beat["seq"] + 3)
        assert ear.kinds() == ["hello"] * 3


def test_what_a_sidecar_imports() -> None:
    """Every worker pays for it: nothing heavy, and of this package only what it needs."""
    program = f"""if True:
        import sys
        sys.path.append({str(Path(shoal.__file__).parent.parent)!r})
        from shoal.elastic.detect import sidecar_main
        print(*sorted(sys.modules))
    """
    output = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], check=True, capture_output=True, text=True
    )
    modules = set(output.stdout.split())
    assert not modules & {
        "asyncio",
        "dataclasses",
        "inspect",
        "logging",
        "pathlib",
        "ssl",
        "subprocess",
        "torch",
    }
    ours = {name.removeprefix("shoal.elastic.") for name in modules if name.startswith("shoal.elastic.")}
    parts = {"crash", "detector", "findings", "progress", "sidecar_main", "uplink"}
    assert ours == {"detect", "wire"} | {f"detect.{part}" for part in parts}
