"""Experiments in virtual time: their ends, early stopping, and a server that is killed at any write."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from shoal.cluster.simulated import Script, run_for
from shoal.objects.job import Job
from shoal.objects.kinds import EXPERIMENT, TRIAL
from shoal.objects.task import TaskSpec
from shoal.objects.trial import Trial
from shoal.search.samplers import Result
from shoal.search.study import Search
from shoal.store.base import SYSTEM
from tests.scenarios.fields import shows
from tests.search.world import SearchPlane, add_ended, document

ASHA = {"name": "asha", "settings": {"minResource": 2, "reductionFactor": 2}}
MEDIAN = {"name": "median", "settings": {"minTrials": 2, "startStep": 3}}
TPE = {"name": "tpe", "seed": 5, "settings": {"nStartupTrials": 3}}


def assert_undisturbed(plane: SearchPlane, count: int) -> None:
    """No trial was doubled, lost or asked again, and every point is the one that a search chooses that
    was never interrupted and was given the same results in the same order."""
    trials, experiment = plane.trials(), plane.experiment()
    assert [trial.spec.number for trial in trials] == list(range(count))
    assert sorted(trial.status.order for trial in trials) == list(range(1, count + 1))
    assert sorted(job.metadata.name for job in plane.jobs()) == sorted(t.status.job for t in trials)
    ended = sorted(trials, key=lambda trial: trial.status.order)
    search, done = Search(experiment.spec), 0
    for trial in trials:
        for each in ended[done : trial.spec.after]:
            state: Any = {"Succeeded": "complete", "EarlyStopped": "stopped"}[each.status.phase]
            result = Result(state, each.status.values, step=each.status.step)
            search.tell(each.spec.number, result)
        done = trial.spec.after
        assert search.ask().parameters == trial.spec.parameters, trial.spec.number


def failing(numbers: set[int], seconds: float = 10, exit_code: int = 1) -> Any:
    def behave(spec: TaskSpec) -> Script:
        number = int(spec.job.rsplit("-", 1)[1])
        return run_for(seconds, exit_code if number in numbers else 0)(spec)

    return behave


@pytest.mark.slow
@shows(
    EXPERIMENT,
    "spec.parallel",
    "spec.maxTrials",
    "spec.objectives[].metric",
    "spec.objectives[].direction",
    "spec.parameters[].name",
    "spec.parameters[].type",
    "spec.parameters[].min",
    "spec.parameters[].max",
    "spec.template",
    "spec.algorithm.name",
)
def test_trials_run_in_parallel_to_the_end() -> None:
    plane = SearchPlane(cpus=8)
    plane.apply()
    plane.advance(1)
    assert len(plane.jobs()) == 3
    ended = plane.finish()
    assert (ended.status.phase, ended.status.reason) == ("Succeeded", "Completed")
    assert ended.status.trials.succeeded == 12
    trials = plane.trials()
    assert [trial.spec.number for trial in trials] == list(range(12))
    (best,) = ended.status.best
    values = [trial.status.values[0] for trial in trials]
    assert best.values == (min(values),)
    assert ended.status.node_seconds == pytest.approx(120, abs=1)
    for job in plane.jobs():
        assert job.metadata.labels["shoal.dev/experiment"] == "search"
        assert job.metadata.owners[0].uid == ended.metadata.uid


@pytest.mark.parametrize(
    ("algorithm", "stopping"),
    [({"name": "random", "seed": 3}, ASHA), (TPE, ASHA), ({"name": "random", "seed": 3}, MEDIAN)],
    ids=["random-asha", "tpe-asha", "median"],
)
@pytest.mark.slow
def test_a_server_killed_after_every_write_changes_nothing(algorithm: Any, stopping: Any) -> None:
    spec: dict[str, Any] = {"maxTrials": 8, "algorithm": algorithm, "earlyStopping": stopping}
    plane = SearchPlane()
    plane.apply(**spec)
    while plane.experiment().status.phase not in ("Succeeded", "Failed"):
        plane.die_after = 1
        plane.pass_time(0.25)
    plane.die_after = None
    ended = plane.finish()
    assert plane.deaths > 20
    assert ended.status.trials.succeeded + ended.status.trials.early_stopped == 8
    assert_undisturbed(plane, 8)


@pytest.mark.slow
def test_fifty_kills_at_random_writes_change_nothing() -> None:
    chance, plane = Random(1), SearchPlane()
    plane.apply(maxTrials=26, algorithm=TPE, earlyStopping=ASHA)
    while plane.deaths < 50 or plane.experiment().status.phase != "Succeeded":
        if plane.deaths < 50:
            plane.die_after = plane.die_after or chance.randrange(1, 4)
        plane.pass_time(0.25 if plane.deaths < 50 else 1.0)
        assert plane.deaths >= 50 or plane.experiment().status.phase == "Running", plane.deaths
    plane.die_after = None
    plane.finish()
    assert_undisturbed(plane, 26)


@pytest.mark.slow
@shows(EXPERIMENT, "spec.earlyStopping.name", "spec.earlyStopping.settings")
def test_asha_stops_bad_trials_and_says_why() -> None:
    plane = SearchPlane()
    plane.apply(earlyStopping=ASHA)
    ended = plane.finish()
    stopped = [t for t in plane.trials() if t.status.phase == "EarlyStopped"]
    assert ended.status.trials.early_stopped == len(stopped) > 2
    for trial in stopped:
        assert "is not among the best" in trial.status.message
        job = plane.store.get(Job, "default", trial.status.job, actor=SYSTEM)
        assert job.status.phase == "Cancelled"
        assert trial.status.finished < trial.status.started + 10
    good = [t.status.values for t in plane.trials() if t.status.phase == "Succeeded"]
    assert ended.status.best[0].values == min(good)


def test_a_stop_follows_its_report_within_a_second() -> None:
    plane = SearchPlane(seconds=100)
    plane.curves.loss = lambda point, step: 1.0 if step < 5 else 99.0  # type: ignore[union-attr]
    bounds = {"name": "threshold", "settings": {"upper": 50}}
    plane.apply(maxTrials=1, earlyStopping=bounds)
    plane.finish()
    (trial,) = plane.trials()
    assert trial.status.phase == "EarlyStopped"
    assert trial.status.message == "at step 5 the objective 99 is above 50"
    assert trial.status.finished - (trial.status.started + 5) <= 1.0


@shows(EXPERIMENT, "spec.objectives[].goal")
def test_a_goal_ends_the_experiment_and_what_runs() -> None:
    plane = SearchPlane(cpus=3)
    objective = {"metric": "loss", "direction": "minimize", "goal": 8.0}
    plane.apply(objectives=[objective], maxTrials=100)
    ended = plane.finish()
    assert (ended.status.phase, ended.status.reason) == ("Succeeded", "GoalReached")
    assert ended.status.trials.total < 100
    assert ended.status.best[0].values[0] <= 8.0
    assert not ended.status.trials.running


@shows(EXPERIMENT, "spec.maxFailed")
def test_failed_trials_count_and_too_many_fail_the_experiment() -> None:
    plane = SearchPlane(behave=failing(set(range(12))))
    plane.apply(maxFailed=3, template=never_restarted())
    ended = plane.finish()
    assert (ended.status.phase, ended.status.reason) == ("Failed", "TooManyFailures")
    assert ended.status.trials.failed == 3


def test_without_one_good_trial_it_fails() -> None:
    plane = SearchPlane(behave=failing(set(range(12))))
    plane.apply(maxTrials=4, template=never_restarted())
    ended = plane.finish()
    assert (ended.status.phase, ended.status.reason) == ("Failed", "NoGoodTrial")
    assert "4 trials failed" in ended.status.message


def never_restarted() -> dict[str, Any]:
    role = {"command": ["train", "${x}", "${y}"]}
    return {"spec": {"restart": {"policy": "Never"}, "roles": [role]}}


def test_a_trial_without_its_metric_says_what_to_do() -> None:
    plane = SearchPlane()
    plane.curves.silent = {1}  # type: ignore[union-attr]
    plane.apply(maxTrials=3)
    ended = plane.finish()
    assert ended.status.trials.metrics_unavailable == 1
    message = plane.trials()[1].status.message
    assert "never reported loss; it reported nothing" in message
    assert "shoal.report(loss=...)" in message


def test_an_objective_that_is_not_a_number_fails_its_trial() -> None:
    plane = SearchPlane()
    plane.curves.loss = lambda point, step: float("nan")  # type: ignore[union-attr]
    plane.apply(maxTrials=2)
    assert plane.finish().status.trials.failed == 2
    assert plane.trials()[0].status.reason == "ObjectiveNotFinite"


def test_infrastructure_failures_are_retried_and_not_counted() -> None:
    plane = SearchPlane(cpus=2)
    role = {"command": ["train", "${x}", "${y}"]}
    plane.apply(
        maxTrials=2,
        parallel=1,
        maxFailed=1,
        template={"spec": {"restart": {"infrastructureLimit": 0}, "roles": [role]}},
    )
    plane.advance(3)
    (job,) = plane.jobs()
    (task,) = plane.tasks(job.metadata.name).values()
    plane.cluster.lose_supervisor(task.spec.key)
    ended = plane.finish()
    assert (ended.status.phase, ended.status.trials.succeeded) == ("Succeeded", 2)
    first = plane.trials()[0]
    assert (first.status.retries, first.status.job) == (1, f"{first.metadata.name}-r1")
    assert len(plane.jobs()) == 3
    (again,) = (message for _, reason, message in plane.notes if reason == "TrialRetried")
    assert again.startswith(f"trial {first.metadata.name} starts again: ")


@pytest.mark.slow
@shows(EXPERIMENT, "spec.suspend")
def test_suspend_stops_everything_and_resume_goes_on() -> None:
    plane = SearchPlane()
    plane.apply(maxTrials=4)
    plane.advance(3)
    plane.edit(suspend=True)
    plane.advance(40)
    assert plane.experiment().status.phase == "Suspended"
    assert {job.status.phase for job in plane.jobs()} == {"Suspended"}
    assert len(plane.trials()) == 3
    plane.edit(suspend=False)
    assert plane.finish().status.trials.succeeded == 4


@pytest.mark.slow
def test_scale_changes_how_many_run() -> None:
    plane = SearchPlane(cpus=8)
    plane.apply(parallel=1)
    plane.advance(3)
    assert plane.experiment().status.trials.running == 1
    plane.edit(parallel=5)
    plane.advance(2)
    assert plane.experiment().status.trials.running == 5
    plane.edit(parallel=2)
    plane.advance(12)
    assert plane.experiment().status.trials.running == 2
    assert plane.finish().status.trials.succeeded == 12


@pytest.mark.slow
def test_auto_uses_what_is_idle() -> None:
    plane = SearchPlane(cpus=4)
    plane.apply(parallel="auto")
    plane.advance(5)
    status = plane.experiment().status
    assert (status.trials.running, status.trials.pending) == (4, 1)
    assert plane.finish().status.trials.succeeded == 12


@shows(EXPERIMENT, "spec.cancelled")
def test_cancel_ends_it_and_its_jobs() -> None:
    plane = SearchPlane()
    plane.apply()
    plane.advance(12)
    plane.edit(cancelled=True)
    ended = plane.finish()
    assert (ended.status.phase, ended.status.trials.cancelled) == ("Cancelled", 3)
    assert {job.status.phase for job in plane.jobs()} == {"Succeeded", "Cancelled"}


@pytest.mark.slow
@pytest.mark.parametrize("budget", [{"wallTime": "25s"}, {"nodeHours": 75 / 3600}])
@shows(EXPERIMENT, "spec.budget.wallTime", "spec.budget.nodeHours")
def test_a_budget_ends_it(budget: dict[str, Any]) -> None:
    plane = SearchPlane()
    plane.apply(budget=budget, maxTrials=None)
    ended = plane.finish()
    assert (ended.status.phase, ended.status.reason) == ("Succeeded", "Completed")
    assert "used up" in ended.status.message
    assert 6 <= ended.status.trials.succeeded <= 9
    assert ended.status.finished - ended.status.started == pytest.approx(25, abs=11)


def test_a_rejected_template_is_one_sentence_on_the_trial() -> None:
    plane = SearchPlane()
    role = {"command": ["train", "${x}", "${y}"]}
    plane.apply(maxTrials=2, template={"spec": {"queue": "nowhere", "roles": [role]}})
    ended = plane.finish()
    assert ended.status.reason == "NoGoodTrial"
    first = plane.trials()[0]
    assert (first.status.phase, first.status.reason) == ("Failed", "TemplateRejected")
    assert "there is no queue nowhere" in first.status.message


@pytest.mark.slow
@shows(EXPERIMENT, "spec.points", "spec.algorithm.settings")
def test_points_come_first_and_grids_end_by_themselves() -> None:
    plane = SearchPlane()
    plane.apply(points=[{"x": 1.0, "y": -2.0}, {"x": 0.5}], maxTrials=4)
    ended = plane.finish()
    first, second, *_ = plane.trials()
    assert first.spec.parameters == {"x": 1.0, "y": -2.0}
    assert (first.spec.origin, second.spec.parameters["x"]) == ("point", 0.5)
    assert ended.status.best[0].number == 0
    plane.apply("grid", algorithm={"name": "grid", "settings": {"pointsPerFloat": 3}}, maxTrials=None)
    assert plane.finish("grid").status.trials.succeeded == 9


@pytest.mark.slow
@shows(EXPERIMENT, "spec.warmStart")
def test_a_warm_start_learns_from_an_earlier_experiment() -> None:
    plane = SearchPlane(cpus=8)
    plane.apply(maxTrials=8, algorithm=TPE)
    plane.finish()
    plane.apply("cold", maxTrials=3, parallel=1, algorithm=TPE)
    plane.apply("warm", maxTrials=3, parallel=1, algorithm=TPE, warmStart=["search"])
    plane.finish("warm")
    plane.finish("cold")
    cold, warm = plane.trials("cold"), plane.trials("warm")
    assert cold[0].spec.parameters != warm[0].spec.parameters


@pytest.mark.slow
def test_population_based_training_continues_from_better_trials() -> None:
    plane = SearchPlane(cpus=8)
    command = ["train", "${x}", "${y}", "--from=${trial.parent}"]
    plane.apply(
        algorithm={"name": "pbt", "settings": {"populationSize": 4}},
        parallel=4,
        maxTrials=16,
        template={"spec": {"roles": [{"command": command}]}},
    )
    assert plane.finish().status.trials.succeeded == 16
    trials = plane.trials()
    assert not any(trial.spec.parent for trial in trials[:4])
    assert all(trial.spec.parent for trial in trials[4:])
    forked = [t for t in trials[4:] if t.spec.parent != trials[t.spec.number - 4].status.job]
    assert forked
    job = plane.store.get(Job, "default", forked[0].status.job, actor=SYSTEM)
    assert job.spec.roles[0].command[-1] == f"--from={forked[0].spec.parent}"


def test_a_deleted_experiment_takes_its_trials_and_jobs_along() -> None:
    plane = SearchPlane()
    made = plane.apply()
    plane.advance(5)
    plane.store.delete(EXPERIMENT, "default", "search", actor=SYSTEM, uid=made.metadata.uid)
    plane.advance(60)
    assert (plane.trials(), plane.jobs()) == ([], [])


def test_a_trial_is_a_record_of_its_own() -> None:
    plane = SearchPlane()
    plane.apply(maxTrials=1)
    plane.finish()
    (trial,) = plane.trials()
    assert isinstance(trial, Trial)
    assert (trial.status.step, trial.status.values[0]) == (10, trial.status.latest)


def test_of_one_step_the_first_report_counts() -> None:
    from shoal.control.experiment import _Progress  # pyright: ignore[reportPrivateUsage]
    from shoal.history.base import JobKey, Point

    progress, job = _Progress(), JobKey(namespace="a", name="b", uid="c")
    for order, (step, value) in enumerate([(5, 0.5), (5, 0.1), (None, 0.7), (6, 0.8)], 1):
        progress.add(
            Point(
                job=job, name="f", value=value, at=0, step=step, writer="w", sequence=order, order=order
            )
        )
    assert (progress.least["f"], progress.last["f"], progress.order) == (0.5, 0.8, 4)


@pytest.mark.slow
def test_the_cost_of_an_event_does_not_grow_with_the_trials_that_have_ended() -> None:
    few, many = (calls_of_one_end(ended) for ended in (20, 400))
    assert many < few * 1.3, (few, many)


def calls_of_one_end(ended: int) -> int:
    """Function calls of the experiment controller while one trial ends beside `ended` earlier ones."""
    plane = SearchPlane(cpus=1)
    experiment = plane.apply(maxTrials=1000, parallel=1, earlyStopping=MEDIAN)
    for number in range(ended):
        add_ended(plane, experiment, number, {"x": 1.0, "y": 0.0}, 1e6 + number)
    plane.pass_time(5.5)  # what is kept in memory is made, and one trial runs
    (controller,) = (
        workers.controller
        for workers in plane.runner._workers
        if workers.controller.name == "experiment"
    )
    count, inner = 0, controller.reconcile

    def counted(key: Any, now: float) -> float | None:
        sys.setprofile(count_call)
        try:
            return inner(key, now)
        finally:
            sys.setprofile(None)

    def count_call(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event == "call"

    controller.reconcile = counted  # type: ignore[method-assign]
    plane.pass_time(5.0)
    assert plane.experiment().status.trials.total == ended + 2
    return count


@pytest.mark.slow
def test_events_say_what_happened_to_the_experiment() -> None:
    plane = SearchPlane(behave=failing({2}))
    plane.apply(earlyStopping=ASHA)
    plane.finish()
    notes = [(reason, message) for name, reason, message in plane.notes if name == "search"]
    trials = plane.trials()
    reasons = [reason for reason, _ in notes]
    assert reasons.count("TrialStarted") == 12
    assert (
        reasons.count("TrialEarlyStopped") == sum(t.status.phase == "EarlyStopped" for t in trials) > 0
    )
    assert reasons.count("TrialFailed") == 1
    first = trials[0]
    x, y = first.spec.parameters["x"], first.spec.parameters["y"]
    assert notes[0] == ("TrialStarted", f"trial {first.metadata.name} with x={x!r} y={y!r}")
    best = [message for reason, message in notes if reason == "BestSoFar"]
    values = [t.status.values[0] for t in sorted(trials, key=lambda t: t.status.order)
              if t.status.phase == "Succeeded"]  # fmt: skip
    assert len(best) == sum(value < min(values[:at], default=99) for at, value in enumerate(values))
    assert "(before: " not in best[0]
    assert all("(before: " in each for each in best[1:])
    assert reasons[-1] == "Succeeded"
    assert "all 12 trials have ended; the best is" in notes[-1][1]


@shows(EXPERIMENT, "spec.algorithm.seed")
def test_the_seed_decides_the_points() -> None:
    plane = SearchPlane(cpus=9, seconds=2)
    for name, seed in (("one", 1), ("again", 1), ("two", 2)):
        plane.apply(name, maxTrials=3, algorithm={"name": "random", "seed": seed})
    points = {
        name: [t.spec.parameters for t in plane.trials(name)]
        for name in ("one", "again", "two")
        if plane.finish(name)
    }
    assert points["one"] == points["again"] != points["two"]


@shows(
    EXPERIMENT, "spec.constraints[].metric", "spec.constraints[].min", "spec.constraints[].max",
)  # fmt: skip
def test_a_trial_outside_a_constraint_is_not_best() -> None:
    plane = SearchPlane(seconds=2)
    plane.curves.size = lambda point: 10 * point["x"]  # type: ignore[union-attr]
    points = [{"x": 1.0, "y": -2.0}, {"x": 2.0, "y": 0.0}, {"x": 4.0, "y": -2.0}]
    constraint = {"metric": "size", "min": 15, "max": 35}
    plane.apply(maxTrials=3, points=points, constraints=[constraint])
    ended = plane.finish()
    assert [t.status.violations for t in plane.trials()] == [(5.0,), (-5.0,), (5.0,)]
    assert [each.number for each in ended.status.best] == [1]


@shows(EXPERIMENT, "spec.objectives[].value")
@pytest.mark.parametrize(("value", "expected"), [("best", 1), ("last", 2), ("min", 1), ("max", 9)])
def test_which_report_is_the_value_of_a_trial(value: str, expected: float) -> None:
    plane = SearchPlane(seconds=4)
    curve = {1: 5.0, 2: 9.0, 3: 1.0, 4: 2.0}
    plane.curves.loss = lambda point, step: curve[step]  # type: ignore[union-attr]
    plane.apply(maxTrials=1, objectives=[{"metric": "loss", "direction": "minimize", "value": value}])
    assert plane.finish().status.best[0].values == (expected,)


@shows(
    EXPERIMENT, "spec.parameters[].choices", "spec.parameters[].step", "spec.parameters[].log",
    "spec.parameters[].when.parameter", "spec.parameters[].when.values",
)  # fmt: skip
def test_parameters_reach_the_jobs_as_the_space_says() -> None:
    plane = SearchPlane(cpus=12, seconds=2)
    when = {"parameter": "opt", "values": ["sgd"]}
    space = [
        *plane_parameters(),
        {"name": "opt", "type": "categorical", "choices": ["sgd", "adam"]},
        {"name": "n", "type": "int", "min": 1, "max": 9, "step": 4},
        {"name": "lr", "type": "float", "min": 1e-6, "max": 1, "log": True},
        {"name": "m", "type": "float", "min": 0, "max": 1, "when": when},
    ]  # fmt: skip
    command = ["train", "${x}", "${y}", "${opt}", "${n}", "${lr}", "${m}"]
    template = {"spec": {"roles": [{"command": command}]}}
    plane.apply(parameters=space, parallel=12, template=template)
    plane.finish()
    commands = [job.spec.roles[0].command for job in plane.jobs()]
    assert {words[3] for words in commands} == {"sgd", "adam"}
    assert {words[4] for words in commands} == {"1", "5", "9"}
    assert sum(float(words[5]) < 1e-3 for words in commands) in range(3, 10)
    assert all((len(words) == 7) == (words[3] == "sgd") for words in commands)


def plane_parameters() -> list[dict[str, Any]]:
    """The parameters that every trial's curve reads."""
    return [{"name": name, "type": "float", "min": -5, "max": 5} for name in "xy"]


@shows(EXPERIMENT, "spec.user")
def test_its_jobs_count_for_its_user() -> None:
    plane = SearchPlane(seconds=2)
    plane.apply(maxTrials=1, user="ann")
    plane.finish()
    assert [job.spec.user for job in plane.jobs()] == ["ann"]


@shows(
    TRIAL, "spec.experiment", "spec.number", "spec.parameters", "spec.parent", "spec.origin",
    "metadata.name", "metadata.namespace", "metadata.owners[].kind", "metadata.owners[].name",
    "metadata.owners[].uid",
)  # fmt: skip
def test_a_stored_trial_is_a_claim_whose_job_is_made() -> None:
    plane = SearchPlane(seconds=2)
    command = ["train", "${x}", "${y}", "--from=${trial.parent}"]
    points = [{"x": 1.0, "y": 1.0}, {"x": 2.0, "y": 2.0}]
    template = {"spec": {"roles": [{"command": command}]}}
    made = plane.apply(maxTrials=3, points=points, template=template)
    owner = {"kind": "Experiment", "name": "search", "uid": made.metadata.uid}
    claim = {
        "metadata": {"name": "claimed", "namespace": "default", "owners": [owner]},
        "spec": {
            "experiment": "search", "number": 0, "parameters": {"x": 4.0, "y": 3.0},
            "parent": "earlier", "origin": "point",
        },
    }  # fmt: skip
    plane.create(TRIAL, claim)
    plane.finish()
    assert [t.spec.number for t in plane.trials()] == [0, 1, 2]
    assert plane.trials()[1].spec.parameters == points[1]
    job = plane.store.get(Job, "default", "claimed", actor=SYSTEM)
    assert job.spec.roles[0].command == ("train", "4.0", "3.0", "--from=earlier")
    assert plane.trials()[0].status.phase == "Succeeded"


@shows(EXPERIMENT, "metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations")
@shows(TRIAL, "metadata.labels", "metadata.annotations")
def test_metadata_of_experiments_and_trials() -> None:
    plane = SearchPlane(seconds=2)
    kept = {"labels": {"team": "a"}, "annotations": {"example.com/why": "because"}}
    named = [{"name": "search", "namespace": space, **kept} for space in ("default", "team-b")]
    made = [plane.create(EXPERIMENT, {**document(), "metadata": each}) for each in named]
    owner = {"kind": "Experiment", "name": "search", "uid": made[0].metadata.uid}
    trial = {"experiment": "search", "number": 0, "parameters": {"x": 0.0, "y": 0.0}}
    plane.create(TRIAL, {"metadata": {"name": "claimed", "owners": [owner], **kept}, "spec": trial})
    plane.advance(1)
    for kind, names in ((EXPERIMENT, ["search", "search"]), (TRIAL, ["claimed"])):
        found = [r.object for r in plane.store.list(kind, selector="team=a", actor=SYSTEM).records]
        assert [each.metadata.name for each in found] == names
        assert all(each.metadata.annotations == kept["annotations"] for each in found)
    spaces = [job.metadata.namespace for job in plane.jobs()]
    assert (spaces.count("default"), spaces.count("team-b")) == (3, 3)


@pytest.mark.slow
@shows(EXPERIMENT, "metadata.finalizers")
@shows(EXPERIMENT, "metadata.owners[].kind", "metadata.owners[].name", "metadata.owners[].uid")
@shows(TRIAL, "metadata.finalizers")
def test_a_deletion_waits_for_finalizers_and_takes_what_is_owned() -> None:
    plane = SearchPlane(seconds=2)
    first = plane.apply("first", maxTrials=1)
    owner = {"kind": "Experiment", "name": "first", "uid": first.metadata.uid}
    held = {"owners": [owner], "finalizers": ["example.com/archive"]}
    plane.create(EXPERIMENT, {**document(), "metadata": {"name": "search", **held}})
    point = {"x": 0.0, "y": 0.0}
    trial = {"experiment": "first", "number": 0, "parameters": point}
    plane.create(TRIAL, {"metadata": {"name": "held", **held}, "spec": trial})
    plane.finish("first")
    plane.store.delete(EXPERIMENT, "default", "first", actor=SYSTEM, uid=first.metadata.uid)
    plane.advance(5)
    assert plane.experiment().metadata.deleted
    (trial,) = plane.trials("first")
    assert (trial.metadata.name, trial.metadata.deleted > 0) == ("held", True)
    assert {job.metadata.labels["shoal.dev/experiment"] for job in plane.jobs()} == {"search"}


@pytest.mark.slow
@shows(EXPERIMENT, "spec.keepOutputs")
def test_outputs_of_the_best_trials_are_kept(tmp_path: Path) -> None:
    plane = SearchPlane(seconds=3)
    plane.outputs = tmp_path
    plane.apply(maxTrials=9, keepOutputs=2)
    while plane.experiment().status.phase not in ("Succeeded", "Failed"):
        plane.advance(1)
        for job in plane.jobs():
            if job.status.phase == "Running":
                (tmp_path / job.metadata.uid).mkdir(exist_ok=True)
        assert len(list(tmp_path.iterdir())) <= 6, "two that are kept, three that run, one that ended"
    plane.advance(5)
    best = sorted(plane.trials(), key=lambda trial: trial.status.values)[:2]
    assert {each.name for each in tmp_path.iterdir()} == {each.status.job_uid for each in best}


@pytest.mark.slow
def test_a_population_keeps_the_outputs_that_it_continues_from(tmp_path: Path) -> None:
    plane = SearchPlane(cpus=4, seconds=3)
    plane.outputs = tmp_path
    settings = {"populationSize": 4, "truncation": 0.5}
    plane.apply(algorithm={"name": "pbt", "settings": settings}, maxTrials=12, parallel=4, keepOutputs=1)
    while plane.experiment().status.phase not in ("Succeeded", "Failed"):
        plane.advance(1)
        for job in plane.jobs():
            if job.status.phase == "Running":
                (tmp_path / job.metadata.uid).mkdir(exist_ok=True)
    assert not [note for note in plane.notes if note[1] == "OutputMissing"]
    plane.advance(5)
    best = min(plane.trials(), key=lambda trial: trial.status.values)
    assert [each.name for each in tmp_path.iterdir()] == [best.status.job_uid]
