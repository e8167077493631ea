"""A job of actors (`tests/elastic/programs/actor.py`): what they are to play, and what they told."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any

from shoal.elastic.coordinator.records import SqliteRecords
from tests.elastic.forked import ForkedJob

__all__ = ["Cue", "Stage", "cue"]

ACTOR = Path(__file__).parents[1] / "programs" / "actor.py"

SILENCE = (
    "its machine is silent",
    "neither the other members nor the coordinator hear its machine",
)

Cue = dict[str, Any]


def cue(step: int, when: str, do: str, **more: Any) -> Cue:
    """See the actor."""
    return {"step": step, "when": when, "do": do, **more}


class Stage(ForkedJob):
    """`play` holds the arguments of all of them."""

    def __init__(
        self,
        folder: Path,
        minimum: int = 1,
        *,
        samples: int = 48,
        batch: int = 12,
        epochs: int = 1,
        options: Sequence[str] = (),
        **play: Any,
    ) -> None:
        super().__init__(folder, minimum, options=options)
        self.prefix: list[str] = []
        self.hurry = folder / "hurry"
        self.play: dict[str, Any] = {
            "folder": str(folder),
            "samples": samples,
            "batch": batch,
            "epochs": epochs,
            "hurry": str(self.hurry),
            **play,
        }
        self.steps = -(-samples // batch) * epochs

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:  # the logs tell where they stand
            self.signal_all(signal.SIGUSR1)
            time.sleep(0.3)
        super().__exit__(kind, error, trace)

    def enter(
        self,
        *names: str,
        environment: Mapping[str, str] | None = None,
        network: str | None = None,
    ) -> None:
        """Start these actors."""
        for name in names:
            self.start(name, [str(ACTOR), json.dumps(self.play)], environment, network)

    def _spawn(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Any:
        """The coordinator: with `prefix` before its command."""
        return super()._spawn(name, [*self.prefix, *command], environment)

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def step(self, name: str) -> int:
        """The last that it has told."""
        return max(
            (line["step"] for line in self.lines(name) if "digest" in line and "size" in line), default=0
        )

    def views(self, name: str) -> list[list[str]]:
        return [line["members"] for line in self.lines(name) if "members" in line]

    def reach(self, name: str, step: int, timeout_seconds: float = 60.0) -> None:
        self.until(lambda: self.step(name) >= step, f"step {step} of {name}", timeout_seconds)

    def together(self, *names: str) -> None:
        """Wait until the newest view of the first has exactly these members."""
        self.until(
            lambda: any(sorted(v) == sorted(names) for v in self.views(names[0])[-1:]),
            f"a view of {names}",
        )

    def cued(self, name: str) -> None:
        """Wait until it has begun to play a cue."""
        self.until(lambda: any("cue" in line for line in self.lines(name)), f"a cue of {name}")

    def finished(self, *names: str, steps: int | None = None) -> list[dict[str, Any]]:
        """All go through to the last step, learned each sample once an epoch, and are equal at every
        step that they took; what each told last."""
        self.hurry.touch()
        last = []
        for name in names:
            assert self.wait(name) == 0, self.log(name)[-3000:]
            last.append(self.lines(name)[-1])
        expected = self.steps if steps is None else steps
        assert {line["step"] for line in last} == {expected}, last
        assert all(line["exact"] for line in last), last
        assert len({line["digest"] for line in last}) == 1, last
        self.equal()
        return last

    def equal(self) -> None:
        """Whoever took a step had the same state after it, optimizers included."""
        seen: dict[int, dict[str, str]] = {}
        for name in self.workers:
            for line in self.lines(name):
                if "digest" in line and "size" in line:
                    seen.setdefault(line["step"], {})[name] = line["digest"]
        for step, digests in seen.items():
            assert len(set(digests.values())) == 1, (step, digests)

    def no_step_missing(self, *names: str) -> None:
        """Each reported every step from its first one on, once. One that was put out because a busy
        machine had starved it may have missed steps until it was back."""
        for name in names:
            lives = [_steps(text) for text in self.log(name).split("elastic: put out, joins again: ")]
            for steps in lives:
                assert steps == list(range(steps[0], steps[0] + len(steps))) if steps else True, name
            assert lives[-1][-1] == self.steps, (name, lives)
            if len(lives) > 1:
                assert self.was_silent(name), name

    def was_silent(self, name: str) -> bool:
        """Whether it was counted lost for the silence of its machine."""
        lost = [reason for each in self.report()["recoveries"] for reason in each["lost"]]
        return any(f"{name}: {silence}" in lost for silence in SILENCE)

    def report(self) -> dict[str, Any]:
        """The coordinator's newest report."""
        with closing(SqliteRecords(self.folder / "record.db")) as records:
            return (records.reports() or [{}])[-1]

    def over(self) -> dict[str, Any]:
        """Wait for the coordinator's end: its last report."""
        assert self.coordinator is not None
        self.coordinator.wait(30.0)
        return self.report()

    def losses(self) -> list[str]:
        """The workers that were counted lost, in order, once the coordinator has ended; but for those
        whose machine was silent, since a busy machine may be."""
        said = [reason for each in self.over()["recoveries"] for reason in each["lost"]]
        lost = [reason.partition(": ") for reason in said]
        return [name for name, _, why in lost if name in self.workers and why not in SILENCE]

    def how(self) -> list[str]:
        """How each recovery rolled the step forward; once the coordinator has ended."""
        return [each["how"] for each in self.over()["recoveries"]]

    def signal_all(self, number: signal.Signals) -> None:
        for process in self.workers.values():
            process.send_signal(number)


def _steps(text: str) -> list[int]:
    """The steps that a worker reported in this part of its log."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith('{"at"')]
    return [line["step"] for line in lines if "digest" in line and "size" in line]
