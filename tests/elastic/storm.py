"""Random harm to an elastic job of real processes, from a printed seed; what must hold afterwards."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shoal.testing.elastic import ElasticJob

COUNT = Path(__file__).parent / "programs" / "count.py"


@dataclass
class Storm:
    """`workers` names stay filled: who is killed is started again, under the same name."""

    job: ElasticJob
    command: Sequence[str]
    workers: int
    seed: int
    kinds: Sequence[str] = ("kill", "kill", "stop", "coordinator", "leave")
    blows: list[tuple[float, str, str]] = field(default_factory=list)
    started: dict[str, float] = field(default_factory=dict)

    def run(self, until: float, pause: tuple[float, float]) -> None:
        """Strike at random until then (monotonic), or until some worker has ended its training."""
        print(f"storm: seed {self.seed}")
        chance = random.Random(self.seed)
        names = [f"w{number}" for number in range(self.workers)]
        for name in names:
            self.start(name)
        self.job.until(lambda: any(self.job.lines(name) for name in names), "the first step")
        while time.monotonic() < until and not self.over():
            time.sleep(chance.uniform(*pause))
            kind = chance.choice(list(self.kinds))
            victim = chance.choice(names)
            if kind == "coordinator" or self.members() - {victim}:
                self.strike(kind, victim, chance)
            for name in names:
                if self.job.workers[name].poll() is not None and not self.over():
                    self.start(name)

    def start(self, name: str) -> None:
        self.started[name] = time.monotonic()
        self.job.start(name, self.command)

    def members(self) -> set[str]:
        """Who is in the newest view and lives: if they all went, no state would be left."""
        views = [line for name in self.job.workers for line in self.job.lines(name) if "members" in line]
        newest = max(views, key=lambda line: line["epoch"])
        return {
            name
            for name in newest["members"]
            if self.started[name] < newest["at"] and self.job.workers[name].poll() is None
        }

    def strike(self, kind: str, victim: str, chance: random.Random) -> None:
        process = self.job.workers[victim]
        self.blows.append((time.monotonic(), kind, victim))
        if kind == "coordinator":
            self.job.kill("coordinator")
            time.sleep(chance.uniform(0.0, 0.5))
            self.job.start_coordinator()
        elif process.poll() is None and kind == "kill":
            self.job.kill(victim)
        elif process.poll() is None and kind == "leave":
            process.send_signal(signal.SIGTERM)
        elif process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            time.sleep(chance.uniform(0.05, 2.0))
            process.send_signal(signal.SIGCONT)

    def over(self) -> bool:
        """Whether somebody has been through all epochs."""
        return any(line.get("done") for name in self.job.workers for line in self.job.lines(name)[-1:])

    def results(self, timeout_seconds: float = 60.0) -> list[dict]:
        """Wait for all; what those told who went through."""
        self.job.until(
            lambda: all(process.poll() is not None for process in self.job.workers.values()),
            "everybody has ended",
            timeout_seconds,
        )
        lines = [line for name in self.job.workers for line in self.job.lines(name)[-1:]]
        return [line for line in lines if line.get("done")]
