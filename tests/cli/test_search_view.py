"""The table of a running search: what it draws over what it drew before, and lines off a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from shoal.cli.search_view import SearchView
from shoal.client.reports import MetricPoint
from shoal.objects import codec
from shoal.objects.experiment import BestTrial, Experiment, ExperimentStatus, TrialCounts
from shoal.objects.meta import Metadata
from shoal.objects.trial import Trial, TrialSpec, TrialStatus
from tests.search.world import document


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Points:
    """A client with metric points, and the orders from which they were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.count = 4

    def metrics(self, namespace: str, name: str, *, uid: str, after: int) -> Iterator[MetricPoint]:
        self.asked.append((name, after))
        for order in range(after + 1, self.count + 1):
            yield MetricPoint(
                name="loss", value=float(9 - order), at=0.0, step=order, order=order, role="worker",
                index=0, incarnation=0,
            )  # fmt: skip


def search(best: tuple[BestTrial, ...] = ()) -> Experiment:
    made: Any = codec.convert(document(maxTrials=5), Experiment)
    status = ExperimentStatus(trials=TrialCounts(running=1, succeeded=1), best=best)
    return Experiment(metadata=Metadata(name="search"), spec=made.spec, status=status)


def trial(number: int, **status: Any) -> Trial:
    spec = TrialSpec(experiment="search", number=number, parameters={"x": 0.123456, "y": float(number)})
    job = {"job": f"search-{number}", "job_uid": f"uid-{number}"}
    return Trial(
        metadata=Metadata(name=f"search-{number}"), spec=spec, status=TrialStatus(**job, **status)
    )


def test_the_table_is_drawn_in_place_of_the_last_one() -> None:
    client, stream = Points(), Terminal()
    view: Any = SearchView(client, stream)  # type: ignore[arg-type]
    ended = trial(0, phase="Succeeded", order=1, values=(4.5,), step=4)
    view.update(search(), [ended, trial(1, phase="Running", latest=7.0, step=2)])
    first = stream.getvalue().splitlines()
    assert first[0] == "1 of 5 trials have ended, 1 run"
    assert first[1].split() == ["TRIAL", "PHASE", "LOSS", "STEP", "CURVE", "X", "Y"]
    assert first[2].split() == ["0", "Succeeded", "4.5", "4", "█▆▃▁", "0.1235", "0"]
    assert first[3].split()[:4] == ["1", "Running", "7", "2"]
    client.count = 6
    stream.truncate(0)
    stream.seek(0)
    best = BestTrial(trial="search-0", number=0, values=(4.5,))
    view.update(search((best,)), [ended, trial(1, phase="Running", latest=6.0, step=3)])
    again = stream.getvalue()
    assert again.startswith("\x1b[4F\x1b[J1 of 5 trials have ended, 1 run; best (*) trial 0: loss=4.5\n")
    assert "0*" in again
    # of a trial that has ended nothing is read again, of the other one what is new
    assert client.asked == [("search-0", 0), ("search-1", 0), ("search-1", 4)]


def test_a_short_terminal_shows_what_runs_and_the_best(monkeypatch: Any) -> None:
    size = SimpleNamespace(columns=100, lines=7)
    monkeypatch.setattr("os.get_terminal_size", lambda _: size)
    stream = Terminal()
    stream.fileno = lambda: 1  # type: ignore[method-assign]
    trials = [trial(n, phase="Succeeded", order=n + 1, values=(float(n),)) for n in range(20)]
    trials.append(trial(20, phase="Running"))
    best = BestTrial(trial="search-0", number=0, values=(0.0,))
    SearchView(Points(), stream).update(search((best,)), trials)  # type: ignore[arg-type]
    shown = [line.split()[0] for line in stream.getvalue().splitlines()[2:]]
    assert shown == ["0*", "19", "20"]


def test_off_a_terminal_each_trial_is_one_line() -> None:
    stream = io.StringIO()
    view = SearchView(Points(), stream)  # type: ignore[arg-type]
    ended = trial(0, phase="EarlyStopped", order=1, values=(4.5,), message="at step 2 ...")
    for _ in range(2):
        view.update(search(), [ended, trial(1, phase="Running")])
    assert stream.getvalue() == "trial 0  EarlyStopped  4.5  x=0.123456 y=0.0  at step 2 ...\n"
