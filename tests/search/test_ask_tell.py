"""Experiments without jobs, whose trials programs take and tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from shoal.client import Client
from shoal.objects.admit import admit
from shoal.objects.errors import Conflict, Invalid
from shoal.objects.experiment import FINISHED, Experiment
from shoal.objects.kinds import EXPERIMENT, TRIAL
from shoal.objects.trial import Trial
from shoal.store.base import SYSTEM
from shoal.testing.local import LocalHome, nodes
from tests.scenarios.fields import shows
from tests.search.world import WRITTEN, SearchPlane, document


def write(plane: SearchPlane, number: int, **fields: Any) -> Trial:
    """Change the spec of a trial, as a program does."""
    trial = plane.trials()[number]
    WRITTEN.append((TRIAL, {"spec": fields}))
    changed = structs.replace(trial, spec=structs.replace(trial.spec, **fields))
    return plane.store.update(changed, actor=SYSTEM)


def phases(plane: SearchPlane) -> list[str]:
    plane.advance(1)
    return [trial.status.phase for trial in plane.trials()]


@shows(TRIAL, "spec.worker", "spec.values", "spec.failed")
def test_a_program_takes_trials_and_writes_what_came_of_them() -> None:
    plane = SearchPlane()
    plane.apply(template={}, maxTrials=4, parallel=2)
    assert phases(plane) == ["Pending", "Pending"]
    write(plane, 0, worker="one")
    write(plane, 1, worker="two")
    assert phases(plane) == ["Running", "Running"]
    write(plane, 1, worker="")
    assert phases(plane) == ["Running", "Pending"]
    write(plane, 0, values=(-3.0,))
    write(plane, 1, worker="one", failed="it diverged")
    assert phases(plane) == ["Succeeded", "Failed", "Pending", "Pending"]
    write(plane, 2, values=(1.0, 2.0))
    write(plane, 3, values=(5.0,))
    ended = plane.finish()
    assert (ended.status.phase, ended.status.best[0].values) == ("Succeeded", (-3.0,))
    messages = [trial.status.message for trial in plane.trials()]
    assert messages[1:3] == ["it diverged", "it has 1 objectives; 2 values were written"]
    assert plane.jobs() == []


def test_results_survive_a_server_that_is_killed_after_every_write() -> None:
    plane = SearchPlane()
    plane.apply(template={}, maxTrials=5, parallel=2)
    plane.advance(1)
    for number in range(5):
        write(plane, number, worker="one", values=(float(number),))
        while plane.trials()[number].status.phase != "Succeeded":
            plane.die_after = 1
            plane.pass_time(0.25)
        plane.die_after = None
        plane.pass_time(1)
    assert plane.deaths > 4
    assert plane.finish().status.trials.succeeded == 5
    assert [trial.spec.number for trial in plane.trials()] == list(range(5))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"earlyStopping": {"name": "asha"}}, "early stopping needs jobs"),
        ({"algorithm": {"name": "pbt"}}, "pbt needs jobs"),
        ({"budget": {"nodeHours": 1}}, "a budget of node hours needs jobs"),
        ({"metricsCollector": {"kind": "StdOut"}}, "a collector needs jobs"),
        ({"constraints": [{"metric": "size", "max": 1}]}, "a constraint needs jobs"),
    ],
)
def test_what_needs_jobs_is_refused_without_a_template(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        admit(document(template={}, **spec), EXPERIMENT)


def test_only_the_result_of_a_trial_may_be_written_and_only_until_it_ends() -> None:
    plane = SearchPlane(seconds=3)
    plane.apply(template={}, maxTrials=2, parallel=1)
    plane.advance(1)
    for fields, message in (({"number": 7}, "it is a point"), ({"values": (float("nan"),)}, "finite")):
        with pytest.raises(Invalid, match=message):
            change(plane, **fields)
    write(plane, 0, values=(1.0,))
    plane.advance(1)
    with pytest.raises(Invalid, match="the trial has ended as Succeeded"):
        change(plane, values=(2.0,))


def change(plane: SearchPlane, **fields: Any) -> None:
    from shoal.objects.admit import check_update

    old = plane.trials()[0]
    check_update(old, structs.replace(old, spec=structs.replace(old.spec, **fields)))


@pytest.mark.slow
@pytest.mark.process
def test_ask_and_tell_through_a_killed_server(tmp_path: Path) -> None:
    with LocalHome(tmp_path / "home", nodes(one={}), server=True) as local:
        with Client.connect(local.home.path) as client:
            experiments = client.experiments
            experiments.create("cook", {"x": "-5.0..5.0"}, minimize="loss", trials=6, parallel=2)
            first = experiments.ask("cook", worker="one")
            second = experiments.ask("cook", worker="two")
            assert first is not None
            assert second is not None
            assert first.metadata.name != second.metadata.name
            with pytest.raises(TimeoutError, match="no trial of experiment cook is free"):
                experiments.ask("cook", timeout_seconds=0.5)
            experiments.release(second)
            again = experiments.ask("cook", worker="three")
            assert again is not None
            assert again.metadata.name == second.metadata.name
            with pytest.raises(Conflict, match="no longer this program's: three has it"):
                experiments.tell(second, 1.0)
            for wrong in ("high", float("nan"), [4.0, 5.0], []):
                with pytest.raises(Invalid, match=r"number|finite|one value for each of loss"):
                    experiments.tell(first, wrong)
            experiments.tell(first, 4.0)
            experiments.tell(first, 4.0)
            with pytest.raises(Invalid, match=r"ended|its result is written already: 4"):
                experiments.tell(first, 5.0)
            experiments.tell(again, None, message="it burned")
        local.kill("server")
        local.up()
        told = [4.0]
        with Client.connect(local.home.path) as client:
            while (trial := client.experiments.ask("cook", timeout_seconds=60)) is not None:
                told.append(trial.spec.parameters["x"] ** 2)
                client.experiments.tell(trial, told[-1])
            ended = client.wait(Experiment, "default", "cook", finished, timeout_seconds=60)
    assert ended is not None
    assert (ended.status.trials.succeeded, ended.status.trials.failed) == (5, 1)
    assert ended.status.best[0].values == (min(told),)


def finished(experiment: Experiment | None) -> bool:
    return experiment is not None and experiment.status.phase in FINISHED
