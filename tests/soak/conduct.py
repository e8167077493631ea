"""An hour in a job's life: it is dealt blows, its places are filled again, it comes to its end."""

from __future__ import annotations

import heapq
import itertools
import json
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from shoal.testing.elastic import ElasticJob
from tests.soak.harm import Harm
from tests.soak.health import Health
from tests.soak.places import Places
from tests.soak.plan import Blow
from tests.soak.tape import Tape

__all__ = ["MOST_PAUSE_SECONDS", "START_SECONDS", "Soak"]

MOST_PAUSE_SECONDS = 30.0
"""Without a step, though somebody who has the state is always left alone. Then the job hangs."""
TICK_SECONDS = 0.02
START_SECONDS = 120.0
SAY_SECONDS = 60.0


class Soak:
    """One run. `parts`: into so many the time is divided; in each one worker and its sidecar are spared,
    and in every other the coordinator, so that there are long lives to look at.

    What was not as it should be is in `problems` afterwards, one line each.
    """

    def __init__(
        self,
        job: ElasticJob,
        command: Sequence[str],
        plan: Iterator[Blow],
        workers: int,
        seconds: float,
        parts: int = 4,
        look_every: float = 5.0,
        say: Callable[[str], object] = print,
    ) -> None:
        self.job = job
        self.seconds = seconds
        self.tape = Tape()
        self.health = Health()
        names = [f"w{number}" for number in range(workers)]
        self.places = Places(job, names, command, self.tape, workers)
        self.harm = Harm(self.places, self._later)
        self.recoveries: dict[int, dict[str, Any]] = {}
        self.kept_bytes: dict[str, int] = {}
        self.problems: list[str] = []
        self.began = self.ended = 0.0
        self._plan = plan
        self._parts = parts
        self._look_every = look_every
        self._say = say
        self._agenda: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._moved = (0, time.monotonic())

    def run(self) -> None:
        """All of it, up to the job's end.

        Raises:
            AssertionError: the job hangs.
            TimeoutError: it does not begin, or does not end.
        """
        workers = len(self.places.names)
        self._until(lambda: len(self.tape.members) == workers, "all are members", START_SECONDS)
        self.began = time.monotonic()
        self.ended = self.began + self.seconds
        self._look()
        self._tell()
        self._strike_next()
        self._until(lambda: time.monotonic() >= self.ended, "the time is over", self.seconds + 60.0)
        assert not self.tape.done, "the epochs were over before the time was"
        self._agenda.clear()
        self._finish()
        self.problems += self.tape.problems + self.places.problems

    def spared(self, now: float) -> tuple[str, bool]:
        """The worker that is spared at that time, and whether the coordinator is."""
        part = min(int((now - self.began) / self.seconds * self._parts), self._parts - 1)
        return self.places.names[part % len(self.places.names)], part % 2 == 0

    def _finish(self) -> None:
        """No more harm: all come back, go through what is left of the epochs at full speed, and end."""
        self.harm.repair()
        self.places.wanted = len(self.places.names)
        (self.job.folder / "resize").write_text(str(self.places.wanted))
        everybody = set(self.places.names)
        self._until(lambda: set(self.places.steady()) == everybody, "all are back", START_SECONDS)
        self.places.anyone_may_leave()
        self.places.wanted = 0
        (self.job.folder / "hurry").touch()
        rest = max(600.0, self.seconds)  # many steps may be left; one that hangs is seen long before
        self._until(lambda: not self.places.living(), "everybody has ended", rest)
        assert self.job.coordinator is not None
        if self.job.coordinator.wait(30.0) != 0:
            self.problems.append(f"the coordinator ended with {self.job.coordinator.returncode}")
        self._read_reports()

    # time

    def _later(self, seconds: float, act: Callable[[], object]) -> None:
        heapq.heappush(self._agenda, (time.monotonic() + seconds, next(self._numbers), act))

    def _until(self, condition: Callable[[], bool], what: str, timeout_seconds: float) -> None:
        def turn() -> bool:
            self._turn()
            return condition()

        self.job.until(turn, what, timeout_seconds)

    def _turn(self) -> None:
        while self._agenda and self._agenda[0][0] <= time.monotonic():
            heapq.heappop(self._agenda)[2]()
        for name in self.places.names:
            self.tape.hear(name, self.job.news(name))
        self.places.fill()
        self._check_pace()
        time.sleep(TICK_SECONDS)

    def _check_pace(self) -> None:
        now = time.monotonic()
        if self.tape.step != self._moved[0] or not self.began:
            self._moved = self.tape.step, now
        if now - self._moved[1] > MOST_PAUSE_SECONDS and not self.tape.done:
            for name in self.places.living():  # they tell where each thread is
                self.job.kill(name, signal.SIGUSR1)
            time.sleep(1.0)
            raise AssertionError(f"no step for {MOST_PAUSE_SECONDS:g} s after step {self._moved[0]}")

    def _strike_next(self) -> None:
        blow = next(self._plan)

        def strike() -> None:
            now = time.monotonic()
            if now < self.ended:
                spared, coordinator = self.spared(now)
                self.harm.strike(blow, now, spared, spare_coordinator=coordinator)
                self._strike_next()

        self._later(blow.after, strike)

    # looking

    def _look(self) -> None:
        self._later(self._look_every, self._look)
        now = time.monotonic()
        steady = self.places.steady()
        for name in self.places.living():
            pid = self.job.workers[name].pid
            if name in steady or pid in self.health.lives:  # before that it imports
                self.health.note(name, pid, now)
            if (sidecar := self.job.sidecar(name)) != 0:
                self.places.pids.add(sidecar)
                self.health.note(f"{name}'s sidecar", sidecar, now)
        assert self.job.coordinator is not None
        self.places.pids.add(self.job.coordinator.pid)
        if self.harm.coordinator_up:
            self.health.note("coordinator", self.job.coordinator.pid, now)
        self._read_reports()
        folder = self.job.folder
        self.kept_bytes = {
            "record": sum(_size(path) for path in folder.glob("record.db*")),
            "coordinator.log": _size(folder / "coordinator.log"),
            "checkpoints": sum(_size(path) for path in (folder / "checkpoints").rglob("*")),
        }

    def _tell(self) -> None:
        self._later(SAY_SECONDS, self._tell)
        tape, seconds = self.tape, time.monotonic() - self.began
        problems = len(tape.problems) + len(self.places.problems)
        self._say(
            f"{seconds / 60:5.1f} min: step {tape.step}, view {tape.epoch} of {len(tape.members)}, "
            f"{len(self.harm.dealt)} blows, {len(self.recoveries)} recoveries, "
            f"{tape.compared} states compared, {problems} problems"
        )

    def _read_reports(self) -> None:
        """Recoveries as the coordinator tells them: how, and how long the slowest member took."""
        with closing(sqlite3.connect(f"file:{self.job.folder}/record.db?mode=ro", uri=True)) as kept:
            newest = kept.execute("SELECT data FROM report ORDER BY number DESC LIMIT 40").fetchall()
        for (text,) in newest:
            for each in json.loads(text)["recoveries"]:
                self.recoveries[each["epoch"]] = each


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0
