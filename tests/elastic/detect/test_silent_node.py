"""A machine falls silent with all its connections open: real workers that train (goal G6)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.elastic.forked import ForkedJob
from tests.elastic.machine import Baseline

from .harness import sidecars_of
from .nodes import Nodes, nodes

pytestmark = [pytest.mark.process, pytest.mark.slow]

COUNT = Path(__file__).parents[1] / "programs" / "count.py"
NAMES = ("a", "b", "c")


class Spread(ForkedJob):
    """A job whose workers are machines of their own, the coordinator at the switch."""

    def __init__(self, folder: Path, machines: Nodes, *options: str) -> None:
        bind = ("--bind", f"{machines.address(0)}:0")
        super().__init__(folder, options=[*bind, "--expect", "3", *options])
        self.machines = machines

    def start(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        network: str | None = None,
    ) -> Any:
        where = {"SHOAL_HOST": self.machines.address(number_of(name))}
        return super().start(name, command, where | dict(environment or {}), network)

    def network(self, name: str) -> str:
        return f"/run/netns/{self.machines.namespaces[number_of(name)]}"


def number_of(name: str) -> int:
    return NAMES.index(name) + 1 if name in NAMES else 0


def counting(folder: Path) -> list[str]:
    """Until the folder's `hurry` is there, 50 ms a step."""
    return [str(COUNT), "192", "16", "15", "0.05", str(folder / "hurry")]


def begin(job: ForkedJob) -> None:
    for name in NAMES:
        job.start(name, counting(job.folder))
    job.until(lambda: all(set(newest(job, name)) == set(NAMES) for name in NAMES), "all are members")
    job.until(lambda: all(step_of(job, name) > 5 for name in NAMES), "they train")


def members(job: ForkedJob, name: str) -> list[list[str]]:
    return [line["members"] for line in job.lines(name) if "members" in line]


def newest(job: ForkedJob, name: str) -> list[str]:
    return (members(job, name) or [[]])[-1]


def step_of(job: ForkedJob, name: str) -> int:
    return max((line["step"] for line in job.lines(name) if "step" in line), default=0)


def after_silence(job: ForkedJob, victim: str, since: float) -> float:
    """When the last of the others has a view without it, and has made a step in it; both are printed."""
    others = [name for name in NAMES if name != victim]
    job.until(lambda: all(victim not in newest(job, name) for name in others), "it is out")
    seen: list[float] = []
    stepped: list[float] = []
    for name in others:
        at = [line["at"] for line in job.lines(name) if victim not in line.get("members", [victim])]
        seen.append(at[0])
        job.until(lambda name=name, at=at: steps_after(job, name, at[0]), "the others go on")
        stepped.append(steps_after(job, name, at[0])[0])
    print(f"view without it after {max(seen) - since:.2f} s, a step after {max(stepped) - since:.2f} s")
    return max(seen) - since


def steps_after(job: ForkedJob, name: str, moment: float) -> list[float]:
    return [line["at"] for line in job.lines(name) if "size" in line and line["at"] > moment]


def finish(job: ForkedJob) -> None:
    (job.folder / "hurry").touch()
    for name in NAMES:
        assert job.wait(name, 90.0) == 0
    assert all(job.lines(name)[-1]["exact"] for name in NAMES)


@pytest.mark.parametrize("star_limit", ["64", "2"])
def test_a_machine_whose_cable_is_pulled(tmp_path: Path, star_limit: str, baseline: Baseline) -> None:
    """G6: the others go on; when the cable is back, it is fenced, joins, and each sample counts once.

    Its silence is seen by the coordinator, which misses its beats, or by the other machines.
    """
    with nodes(3) as machines, Spread(tmp_path, machines, "--star-limit", star_limit) as job:
        begin(job)
        pulled = time.monotonic()
        machines.pull(number_of("b"))
        took = after_silence(job, "b", pulled)
        assert took < baseline.allow(4.0)
        machines.plug(number_of("b"))
        began = time.monotonic()
        job.until(lambda: "b" in newest(job, "a"), "it is back")
        print(f"back after {time.monotonic() - began:.2f} s")
        finish(job)


def test_worker_and_sidecar_stand_still(tmp_path: Path, baseline: Baseline) -> None:
    """G6, training-N2: SIGSTOP of both; when they go on, the worker is fenced and joins anew."""
    with ForkedJob(tmp_path, options=["--expect", "3"]) as job:
        begin(job)
        pid = job.workers["b"].pid
        both = (pid, *sidecars_of(pid))
        assert len(both) == 2
        stopped = time.monotonic()
        for each in both[::-1]:  # the sidecar first: it must not have the time to tell
            os.kill(each, signal.SIGSTOP)
        took = after_silence(job, "b", stopped)
        assert took < baseline.allow(4.0)
        for each in both:
            os.kill(each, signal.SIGCONT)
        began = time.monotonic()
        job.until(lambda: "b" in newest(job, "a"), "it is back")
        print(f"back after {time.monotonic() - began:.2f} s")
