"""The experiment controller: asks the search for points, runs each as a Job, and records its result.

One pass over an experiment:

1. **Trials that have not ended.** A trial without its Job gets it. New metric points are evaluated in
   their order; a rung value (successive halving) is stored before the decision that follows from it.
   A Job that has ended ends its trial, or, where infrastructure failed, the trial starts again.
2. **The end.** Cancelled, a goal reached, too many failures, the budget used up, or every trial ended.
   The experiment's phase is stored first; then what still runs is cancelled.
3. **New trials** while fewer run than `parallel`. The Trial is the claim: it is stored with its point,
   under a name made of the experiment's uid and the number, before its Job is created.
4. **One status write**, where anything changed.

Every step is repeatable: a server that is killed after any write finds in the next pass what is missing.
The search in memory (`Search`, `Stopping`) follows from the stored trials alone, and is made again
after a start, and after any error.
"""

from __future__ import annotations

import math
import shutil
from bisect import insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, cast

import msgspec

from shoal import faults
from shoal.control.cache import ObjectCache, changed_fields
from shoal.control.context import EventRecorder
from shoal.control.forking import fork_output
from shoal.control.lease import Guard
from shoal.control.metric_collector import MetricFeed, Outputs
from shoal.control.runner import Key, Source
from shoal.history.base import JobKey
from shoal.history.base import Point as MetricPoint
from shoal.objects import codec
from shoal.objects.admit import admit
from shoal.objects.errors import Exists, Forbidden, Invalid, NotFound
from shoal.objects.experiment import (
    EXPERIMENT_LABEL,
    FINISHED,
    NUMBER_LABEL,
    RANK_LABEL,
    TRIAL_LABEL,
    BestTrial,
    Experiment,
    ExperimentSpec,
    ExperimentStatus,
    Phase,
    TrialCounts,
    rendered,
)
from shoal.objects.experiment_rules import job_document, read_value, settings_of
from shoal.objects.job import FINISHED as JOB_FINISHED
from shoal.objects.job import Job, priority_number
from shoal.objects.kinds import JOB
from shoal.objects.meta import Metadata
from shoal.objects.trial import ENDED, Rung, Trial, TrialPhase, TrialSpec
from shoal.search.optuna_sampler import MissingExtra
from shoal.search.samplers import Result, Suggestion, Waits, scored
from shoal.search.space import Point
from shoal.search.stopping import Reached, Stopping
from shoal.search.study import Asked, Ended, Search, pareto

__all__ = ["ExperimentController", "trial_name"]

WRITER = "experiment"
_COALESCE_SECONDS = 0.05
_COLLECT_SECONDS = 5.0
"""A job that succeeded without an objective is asked for it for so long after its end."""
_POLL_SECONDS = 0.5
"""While the points of an ended job are still being collected."""
_SHOWN_SECONDS = 5.0
"""The newest value of a running trial is written at most so often."""
_MOST_RETRIES = 3
_MOST_PARALLEL = 1000
"""With `parallel: auto`."""
_MOST_BEST = 100
_RANKS = 8
"""With rungs, the priority of a trial is so much below its template's, and rises by 1 at each rung: low
fidelity is preempted first, and no trial outranks the jobs of other owners."""
_INFRASTRUCTURE = "InfrastructureLimit"
"""The reason of a Job that failed for the platform's faults."""


def trial_name(experiment: Experiment, number: int) -> str:
    """The name of a trial: a function of the experiment's uid and the number."""
    digest = sha256(experiment.metadata.uid.encode()).hexdigest()[:5]
    return f"{experiment.metadata.name}-{digest}-{number}"


class ExperimentController:
    """See the module's docstring; needs one thread."""

    name = "experiment"

    def __init__(
        self,
        *,
        experiments: ObjectCache[Experiment],
        trials: ObjectCache[Trial],
        jobs: ObjectCache[Job],
        metrics: MetricFeed,
        guard: Guard,
        recorder: EventRecorder,
        outputs: Outputs,
    ) -> None:
        self._experiments = experiments
        self._trials = trials
        self._jobs = jobs
        self._metrics = metrics
        self._guard = guard
        self._recorder = recorder
        self._outputs = outputs
        self._memories: dict[str, _Memory] = {}
        """Uid of an experiment to what is known of it beyond the store."""
        self._fresh: set[str] = set()
        """Uids of jobs with new metric points; added to by the thread of the feed."""

    def sources(self) -> Sequence[Source]:
        """Experiments, and what becomes of their trials and jobs."""
        return (
            Source(self._experiments, _on_spec),
            Source(self._jobs, self._on_job, _COALESCE_SECONDS),
            Source(self._trials, self._on_trial, _COALESCE_SECONDS),
            Source(self._metrics, self._on_points, _COALESCE_SECONDS),
        )

    def reconcile(self, key: Key, now: float) -> float | None:
        """Bring one experiment forward."""
        experiment = self._experiments.get(key)
        if experiment is None or experiment.metadata.deleted:
            return None  # its trials and jobs are deleted with it
        try:
            return self._reconcile(experiment, now)
        except BaseException:
            # what is in memory may be ahead of what is stored
            self._memories.pop(experiment.metadata.uid, None)
            raise

    def _reconcile(self, experiment: Experiment, now: float) -> float | None:
        memory = self._memory(experiment, now)
        if experiment.status.phase in FINISHED:
            self._release(experiment, memory, now)
            return None
        for number in sorted(memory.active):
            self._advance(experiment, memory, memory.active[number], now)
        self._cancel_ended(memory)
        self._drop_outputs(experiment, memory)
        ending = _ending(experiment, memory, now) or self._overspent(experiment, memory, now)
        if ending is None and not experiment.spec.suspend:
            ending = self._start_trials(experiment, memory, now)
        status = _status(experiment, memory, now, ending)
        self._write_experiment(experiment, status)
        if ending is not None:
            failed = ending.phase == "Failed"
            self._event(experiment, ending.phase, ending.message, now, warning=failed)
            self._release(cast("Experiment", self._experiments.get(experiment.key)), memory, now)
            return None
        return self._call_again(experiment, memory, now)

    # what is in memory

    def _memory(self, experiment: Experiment, now: float) -> _Memory:
        uid = experiment.metadata.uid
        memory = self._memories.get(uid)
        if memory is None:
            trials = sorted(self._trials.owned_by(uid), key=lambda trial: trial.spec.number)
            memory = self._memories[uid] = _Memory(experiment, trials)
            for trial in trials:
                self._remember(experiment, memory, trial)
        return memory

    def _remember(self, experiment: Experiment, memory: _Memory, trial: Trial) -> None:
        """Take in what is stored of a trial, and the points that were evaluated already."""
        number, stopping = trial.spec.number, memory.stopping
        if trial.status.phase in ENDED:
            job = self._jobs.get((trial.metadata.namespace, trial.status.job))
            if job is not None and job.status.phase not in JOB_FINISHED:
                memory.leaving[number] = job.key
            if trial.status.phase == "Succeeded" and stopping.needs_series:
                self._restore_series(experiment, memory, trial)
                stopping.completed(number)
            return
        memory.active[number] = trial
        if stopping.needs_series:
            self._restore_series(experiment, memory, trial)

    def _restore_series(self, experiment: Experiment, memory: _Memory, trial: Trial) -> None:
        """Take in the points that were evaluated already."""
        progress, metric = _Progress(), experiment.spec.objectives[0].metric
        for point in self._metrics.points(trial.metadata.namespace, trial.status.job_uid):
            if point.order > trial.status.reports:
                return
            step = progress.add(point)
            if step is not None and point.name == metric:
                memory.stopping.take(trial.spec.number, step, point.value)

    def _search(self, experiment: Experiment, memory: _Memory) -> Search:
        """The search, restored from the stored trials when it is first needed."""
        if memory.search is None:
            trials = [memory.trials[number] for number in sorted(memory.trials)]
            ended = sorted((each for each in trials if each.status.order), key=_order)
            numbers = {each.status.job: each.spec.number for each in trials}
            asked = [_asked(each, numbers.get(each.spec.parent)) for each in trials]
            learned = self._learned(experiment)
            memory.search = Search.restore(
                experiment.spec, asked, [Ended(t.spec.number, _result(t)) for t in ended], learned
            )
            memory.search.asked = max(memory.search.asked, experiment.status.suggested)
        return memory.search

    def _learned(self, experiment: Experiment) -> list[tuple[Point, Result]]:
        """Trials of earlier experiments that had ended when this one was created."""
        found: list[tuple[Point, Result]] = []
        count = len(experiment.spec.objectives)
        for name in experiment.spec.warm_start:
            earlier = self._experiments.get((experiment.metadata.namespace, name))
            trials = [] if earlier is None else self._trials.owned_by(earlier.metadata.uid)
            for trial in sorted(trials, key=_order):
                status = trial.status
                known = status.phase == "Succeeded" and len(status.values) == count
                if known and status.finished <= experiment.metadata.created:
                    point = _inside(experiment, trial.spec.parameters)
                    if point is not None:
                        found.append((point, Result("complete", status.values)))
        return found

    # trials that have not ended

    def _advance(self, experiment: Experiment, memory: _Memory, trial: Trial, now: float) -> None:
        if experiment.spec.cancelled:
            return  # ended by `_release`
        if not experiment.spec.template:
            self._take_result(experiment, memory, trial, now)
            return
        job = self._jobs.get((trial.metadata.namespace, _job_name(trial)))
        if job is None and experiment.spec.suspend:
            return
        if job is None and trial.status.job_uid:
            self._end(
                experiment, memory, trial, "Cancelled", "JobDeleted", "its job has been deleted", now
            )
            return
        if job is None:
            self._create_job(experiment, memory, trial, now)
            return
        if not trial.status.job_uid:  # the job was created just before a server died
            trial = self._patch(memory, trial, {"job": job.metadata.name, "jobUid": job.metadata.uid})
        if experiment.spec.suspend != job.spec.suspend and job.status.phase not in JOB_FINISHED:
            if job.spec.suspend and trial.spec.parent and not job.status.started:
                self._fork(experiment, trial, job, now)
            self._edit_job(job, suspend=experiment.spec.suspend)
        elif job.status.phase not in JOB_FINISHED:
            self._promote(memory, trial, job)
        if trial.status.phase == "Pending" and job.status.started:
            fields = {"phase": "Running", "started": trial.status.started or job.status.started}
            trial = self._patch(memory, trial, fields)
        uid, ended = job.metadata.uid, job.status.phase in JOB_FINISHED
        if ended or uid in self._fresh or trial.spec.number not in memory.progress:
            self._fresh.discard(uid)
            if not self._evaluate(experiment, memory, trial, now):
                return
        if ended:
            self._conclude(experiment, memory, memory.active[trial.spec.number], job, now)

    def _take_result(self, experiment: Experiment, memory: _Memory, trial: Trial, now: float) -> None:
        """A trial without a job: whether a program has taken it, and the result that it has written."""
        trial = self._trials.get(trial.key) or trial
        given, wanted = trial.spec, len(experiment.spec.objectives)
        if given.failed:
            self._end(experiment, memory, trial, "Failed", "Told", given.failed, now)
        elif given.values and len(given.values) != wanted:
            message = f"it has {wanted} objectives; {len(given.values)} values were written"
            self._end(experiment, memory, trial, "Failed", "Told", message, now)
        elif given.values:
            self._end(experiment, memory, trial, "Succeeded", "", "", now, values=given.values)
        elif given.worker and trial.status.phase == "Pending":
            self._patch(memory, trial, {"phase": "Running", "started": now})
        elif not given.worker and trial.status.phase == "Running":  # given back
            self._patch(memory, trial, {"phase": "Pending", "started": 0.0})

    def _create_job(self, experiment: Experiment, memory: _Memory, trial: Trial, now: float) -> None:
        name, number = _job_name(trial), trial.spec.number
        document = job_document(experiment, name, number, trial.spec.parameters, trial.spec.parent)
        labels = {
            EXPERIMENT_LABEL: experiment.metadata.name,
            TRIAL_LABEL: trial.metadata.name,
            NUMBER_LABEL: str(number),
        }
        if trial.spec.parent:  # its tasks start once it has the files that it continues from
            document["spec"]["suspend"] = True
        rank = memory.rank(number)
        if rank is not None:
            labels[RANK_LABEL] = str(rank)
        metadata = document["metadata"]
        metadata["labels"] = {**metadata.get("labels", {}), **labels}
        self._guard.check()
        try:
            made = cast("Job", admit(document, JOB))
            if rank is not None:
                below = priority_number(made.spec.priority) - _RANKS + rank
                spec = msgspec.structs.replace(made.spec, priority=below)
                made = msgspec.structs.replace(made, spec=spec)
            job = self._jobs.create(made, owner=experiment)
        except (Invalid, Forbidden) as error:
            hint = f" ({error.hint})" if error.hint else ""
            self._end(
                experiment, memory, trial, "Failed", "TemplateRejected", f"{error.message}{hint}", now
            )
            return
        except Exists:
            there = self._jobs.refresh((trial.metadata.namespace, name))
            owners = () if there is None else there.metadata.owners
            if there is None or all(each.uid != experiment.metadata.uid for each in owners):
                message = f"another job is called {name}"
                self._end(experiment, memory, trial, "Failed", "NameTaken", message, now)
                return
            job = there
        faults.point("server.experiment.job.created")
        self._patch(memory, trial, {"job": job.metadata.name, "jobUid": job.metadata.uid})

    def _promote(self, memory: _Memory, trial: Trial, job: Job) -> None:
        """Raise the priority of the job by the rungs that its trial has passed since the last raise."""
        rank, label = memory.rank(trial.spec.number), job.metadata.labels.get(RANK_LABEL)
        if rank is None or label is None or rank <= int(label):
            return
        labels = {**job.metadata.labels, RANK_LABEL: str(rank)}
        priority = priority_number(job.spec.priority) + rank - int(label)
        metadata = msgspec.structs.replace(job.metadata, labels=labels)
        self._edit_job(msgspec.structs.replace(job, metadata=metadata), priority=priority)

    def _fork(self, experiment: Experiment, trial: Trial, job: Job, now: float) -> None:
        """Give a job that has not started the output of the job that its trial continues from."""
        namespace, parent = trial.metadata.namespace, trial.spec.parent
        target = self._outputs(namespace, job.metadata.uid)
        if target is None:
            return  # the cluster keeps no output folders on this machine
        earlier = self._jobs.get((namespace, parent))
        source = None if earlier is None else self._outputs(namespace, earlier.metadata.uid)
        collector = experiment.spec.metrics_collector
        # the points in the parent's metric files are the parent's
        without = collector.path if collector.kind in ("File", "TensorFlowEvent") else ""
        if source is None or not source.is_dir():
            why = f"trial {trial.metadata.name} starts without the output of job {parent}: it is gone"
            self._event(experiment, "OutputMissing", why, now, warning=True)
            return
        fork_output(source, target, without)
        faults.point("server.experiment.output.forked")

    def _evaluate(self, experiment: Experiment, memory: _Memory, trial: Trial, now: float) -> bool:
        """Evaluate new metric points in their order; False when they ended the trial."""
        number, objective = trial.spec.number, experiment.spec.objectives[0]
        progress = memory.progress.setdefault(number, _Progress())
        points = self._metrics.points(trial.metadata.namespace, trial.status.job_uid, progress.order)
        for point in points:
            step = progress.add(point)
            if step is None or point.name != objective.metric:
                continue
            progress.step, progress.latest = step, point.value
            if point.order <= trial.status.reports:
                continue  # evaluated by an earlier server
            verdict = memory.stopping.take(number, step, point.value)
            fields = progress.shown()
            if verdict.reached is not None:
                order = memory.rung_results + 1
                rung = Rung(rung=verdict.reached.rung, value=verdict.reached.value, order=order)
                fields["rungs"] = codec.builtins((*trial.status.rungs, rung))
                trial = self._patch(memory, trial, fields)
                memory.rung_results = order
                faults.point("server.experiment.rung.written")
            if verdict.stop:
                values = tuple(progress.value(each) for each in experiment.spec.objectives)
                known = values if None not in values else ()
                self._end(
                    experiment,
                    memory,
                    trial,
                    "EarlyStopped",
                    "EarlyStopped",
                    verdict.stop,
                    now,
                    **fields,
                    values=known,
                )
                return False
        # a comparison with completed trials depends on when it was made: it is not made twice
        due = memory.stopping.needs_series or now - progress.written >= _SHOWN_SECONDS
        if due and progress.order > trial.status.reports:
            progress.written = now
            self._patch(memory, trial, progress.shown())
        return True

    def _conclude(
        self, experiment: Experiment, memory: _Memory, trial: Trial, job: Job, now: float
    ) -> None:
        """The job has ended: end the trial, or start it again."""
        if job.status.phase == "Cancelled":
            self._end(
                experiment, memory, trial, "Cancelled", "JobCancelled", "its job has been cancelled", now
            )
            return
        if job.status.phase == "Failed":
            infrastructure = job.status.reason == _INFRASTRUCTURE
            if infrastructure and trial.status.retries < _MOST_RETRIES:
                memory.progress.pop(trial.spec.number, None)
                again = {"retries": trial.status.retries + 1, "job": "", "jobUid": "", "reports": 0}
                spent = trial.status.node_seconds + _node_seconds(job, now)
                fields = {**again, "phase": "Pending", "nodeSeconds": spent}
                why = job.status.message or "its job failed for the platform's faults"
                message = f"trial {trial.metadata.name} starts again: {why}"
                self._event(experiment, "TrialRetried", message, now, warning=True)
                self._create_job(experiment, memory, self._patch(memory, trial, fields), now)
                return
            reason = _INFRASTRUCTURE if infrastructure else "JobFailed"
            message = job.status.message or "its job has failed"
            self._end(experiment, memory, trial, "Failed", reason, message, now)
            return
        progress = memory.progress[trial.spec.number]
        missing = any(progress.value(each) is None for each in experiment.spec.objectives)
        waits = missing and not progress.not_finite and now < job.status.finished + _COLLECT_SECONDS
        if waits or not self._metrics.complete(trial.metadata.namespace, job.metadata.uid):
            memory.collecting.add(trial.spec.number)
            return
        # points may have been stored between the evaluation and the question above
        if not self._evaluate(experiment, memory, trial, now):
            return
        self._complete(experiment, memory, memory.active[trial.spec.number], now)

    def _complete(self, experiment: Experiment, memory: _Memory, trial: Trial, now: float) -> None:
        progress = memory.progress.setdefault(trial.spec.number, _Progress())
        values = [progress.value(each) for each in experiment.spec.objectives]
        fields = progress.shown()
        for objective, value in zip(experiment.spec.objectives, values, strict=True):
            if value is not None:
                continue
            name = objective.metric
            if name in progress.not_finite:
                message = f"{name} was reported, but never as a finite number"
                self._end(
                    experiment, memory, trial, "Failed", "ObjectiveNotFinite", message, now, **fields
                )
                return
            seen = (
                f"it reported {', '.join(sorted(progress.last))}"
                if progress.last
                else "it reported nothing"
            )
            message = (
                f"its job succeeded and never reported {name}; {seen}: call shoal.report({name}=...) "
                "or print the metric in a form that the experiment's collector reads"
            )
            self._end(
                experiment,
                memory,
                trial,
                "MetricsUnavailable",
                "MetricsUnavailable",
                message,
                now,
                **fields,
            )
            return
        violations = tuple(
            progress.violation(each.metric, each.min, each.max) for each in experiment.spec.constraints
        )
        fields |= {"values": tuple(values), "violations": violations}
        if memory.stopping.needs_series:
            memory.stopping.completed(trial.spec.number)
        self._end(experiment, memory, trial, "Succeeded", "", "", now, **fields)

    def _end(
        self,
        experiment: Experiment,
        memory: _Memory,
        trial: Trial,
        phase: TrialPhase,
        reason: str,
        message: str,
        now: float,
        **fields: Any,
    ) -> None:
        """Record that the trial has ended, as the next in the order of ends."""
        number, best = trial.spec.number, memory.best()
        job = self._jobs.get((trial.metadata.namespace, _job_name(trial)))
        spent = trial.status.node_seconds + (0.0 if job is None else _node_seconds(job, now))
        ended = self._patch(
            memory,
            trial,
            {
                **fields,
                "phase": phase,
                "reason": reason,
                "message": message,
                "finished": now,
                "order": memory.ended + 1,
                "nodeSeconds": spent,
            },
        )
        faults.point("server.experiment.trial.ended")
        memory.active.pop(number, None)
        memory.progress.pop(number, None)
        memory.collecting.discard(number)
        if job is not None and job.status.phase not in JOB_FINISHED:
            memory.leaving[number] = job.key
        if memory.search is not None:
            memory.search.tell(number, _result(ended))
        self._report_end(experiment, memory, ended, best, now)

    def _report_end(
        self,
        experiment: Experiment,
        memory: _Memory,
        trial: Trial,
        before: Sequence[BestTrial],
        now: float,
    ) -> None:
        """Events of a trial's end: how it ended, and whether it is the best so far."""
        status, name = trial.status, trial.metadata.name
        if status.phase != "Succeeded":
            failed = status.phase in ("Failed", "MetricsUnavailable")
            message = f"trial {name}: {status.message}"
            self._event(experiment, f"Trial{status.phase}", message, now, warning=failed)
            return
        metrics = [each.metric for each in experiment.spec.objectives]
        values = " ".join(f"{m}={v:.6g}" for m, v in zip(metrics, status.values, strict=True))
        self._event(experiment, "TrialSucceeded", f"trial {name} with {values}", now)
        best = memory.best()
        if all(each.trial != name for each in best):
            return
        if len(metrics) > 1:
            message = f"trial {name} with {values} is on the Pareto front of {len(best)} trials"
        else:
            earlier = f" (before: {before[0].values[0]:.6g} of {before[0].trial})" if before else ""
            message = f"trial {name} with {values}{earlier}"
        self._event(experiment, "BestSoFar", message, now)

    def _cancel_ended(self, memory: _Memory) -> None:
        """Cancel the jobs of trials that have ended."""
        for number, key in list(memory.leaving.items()):
            job = self._jobs.get(key)
            if job is None or job.status.phase in JOB_FINISHED or job.spec.cancelled:
                del memory.leaving[number]
            else:
                self._edit_job(job, cancelled=True)

    def _drop_outputs(self, experiment: Experiment, memory: _Memory) -> None:
        """Delete the outputs of ended trials beyond the best ones."""
        if experiment.spec.keep_outputs is None:
            return
        for trial in memory.surplus(experiment.spec.keep_outputs):
            namespace = trial.metadata.namespace
            job = self._jobs.get((namespace, _job_name(trial)))
            if job is not None and job.status.phase not in JOB_FINISHED:
                continue  # its tasks still write
            folder = self._outputs(namespace, trial.status.job_uid) if trial.status.job_uid else None
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            memory.dropped(trial.spec.number)

    # the experiment as a whole

    def _start_trials(self, experiment: Experiment, memory: _Memory, now: float) -> _Ending | None:
        """Choose points and start them while there is room; how the experiment ends, if it does now."""
        spec = experiment.spec
        while not self._full(experiment, memory):
            try:
                search = self._search(experiment, memory)
                if search.exhausted or (spec.max_trials or math.inf) <= search.asked:
                    break
                number = search.asked
                chosen = search.ask()
            except Waits:
                return None
            except MissingExtra as error:
                return _Ending("Failed", "MissingExtra", f"{error.message}: {error.hint}")
            self._start_trial(experiment, memory, number, chosen, now)
        if memory.active or memory.leaving:
            return None
        search = self._search(experiment, memory)
        if search.exhausted or (spec.max_trials or math.inf) <= search.asked:
            count = len(memory.trials)
            why = f"all {count} trials have ended" if count != 1 else "the only trial has ended"
            return _completion(experiment, memory, why)
        return None

    def _full(self, experiment: Experiment, memory: _Memory) -> bool:
        parallel = experiment.spec.parallel
        if isinstance(parallel, int):
            return len(memory.active) >= parallel
        waiting = any(each.status.phase == "Pending" for each in memory.active.values())
        return waiting or len(memory.active) >= _MOST_PARALLEL

    def _start_trial(
        self, experiment: Experiment, memory: _Memory, number: int, chosen: Suggestion, now: float
    ) -> None:
        parent = "" if chosen.parent is None else memory.trials[chosen.parent].status.job
        trial = Trial(
            metadata=Metadata(
                name=trial_name(experiment, number),
                namespace=experiment.metadata.namespace,
                labels={EXPERIMENT_LABEL: experiment.metadata.name, NUMBER_LABEL: str(number)},
            ),
            spec=TrialSpec(
                experiment=experiment.metadata.name,
                number=number,
                parameters=chosen.parameters,
                after=memory.ended,
                parent=parent,
                origin=chosen.origin,
            ),
        )
        self._guard.check()
        made = self._trials.create(trial, owner=experiment)
        faults.point("server.experiment.trial.created")
        memory.keep(made)
        memory.active[number] = made
        point = " ".join(f"{key}={rendered(value)}" for key, value in chosen.parameters.items())
        message = f"trial {made.metadata.name} with {point}"
        if parent:
            message += f" continues from the output of job {parent}"
        self._event(experiment, "TrialStarted", message, now)
        if experiment.spec.template:
            self._create_job(experiment, memory, made, now)

    def _overspent(self, experiment: Experiment, memory: _Memory, now: float) -> _Ending | None:
        """How the experiment ends because its node hours are used up."""
        most = experiment.spec.budget.node_hours
        if most is None:
            return None
        jobs = (self._jobs.get((t.metadata.namespace, _job_name(t))) for t in memory.active.values())
        spent = memory.node_seconds + sum(_node_seconds(job, now) for job in jobs if job is not None)
        if spent < most * 3600:
            return None
        return _completion(experiment, memory, f"{most:g} node hours are used up")

    def _release(self, experiment: Experiment, memory: _Memory, now: float) -> None:
        """End what still runs of an experiment that has ended, and count it."""
        for number in sorted(memory.active):
            trial = memory.active[number]
            message = "the experiment ended before it"
            self._end(experiment, memory, trial, "Cancelled", "ExperimentEnded", message, now)
        self._cancel_ended(memory)
        self._drop_outputs(experiment, memory)
        counts = memory.counts()
        status = msgspec.structs.replace(
            experiment.status, trials=counts, node_seconds=memory.node_seconds
        )
        self._write_experiment(experiment, status)
        if not memory.leaving:
            self._memories.pop(experiment.metadata.uid, None)

    def _write_experiment(self, experiment: Experiment, status: ExperimentStatus) -> None:
        fields = changed_fields(experiment.status, msgspec.structs.replace(status, writers={}))
        if fields:
            self._guard.check()
            self._experiments.patch_status(experiment, writer=WRITER, fields=fields)
            faults.point("server.experiment.status.written")

    def _call_again(self, experiment: Experiment, memory: _Memory, now: float) -> float | None:
        waits: list[float] = []
        if memory.collecting:
            waits.append(_POLL_SECONDS)
        budget, started = experiment.spec.budget, memory.started
        if budget.wall_time is not None and started:
            waits.append(max(0.01, started + budget.wall_time - now))
        if budget.node_hours is not None and memory.active:
            waits.append(10.0)
        return min(waits, default=None)

    def _patch(self, memory: _Memory, trial: Trial, fields: dict[str, Any]) -> Trial:
        """Write fields (wire names) of a trial's status."""
        self._guard.check()
        patched = self._trials.patch_status(trial, writer=WRITER, fields=fields)
        memory.keep(patched)
        if trial.spec.number in memory.active:
            memory.active[trial.spec.number] = patched
        return patched

    def _event(
        self, experiment: Experiment, reason: str, message: str, now: float, *, warning: bool = False
    ) -> None:
        self._recorder.event(experiment, reason, message, warning=warning, at=now)

    def _edit_job(self, job: Job, **fields: Any) -> None:
        self._guard.check()
        spec = msgspec.structs.replace(job.spec, **fields)
        try:
            self._jobs.update(msgspec.structs.replace(job, spec=spec))
        except NotFound:
            return  # deleted by a person
        faults.point("server.experiment.job.edited")

    def _on_job(self, old: Job | None, new: Job | None) -> list[Key]:
        job = new or old
        if job is None or EXPERIMENT_LABEL not in job.metadata.labels:
            return []
        if old is not None and new is not None:
            same = old.status.phase == new.status.phase and old.status.started == new.status.started
            if same and old.spec.suspend == new.spec.suspend:
                return []
        return [(job.metadata.namespace, job.metadata.labels[EXPERIMENT_LABEL])]

    def _on_points(self, _old: JobKey | None, new: JobKey | None) -> list[Key]:
        job = None if new is None else self._jobs.get((new.namespace, new.name))
        if job is None or EXPERIMENT_LABEL not in job.metadata.labels:
            return []
        self._fresh.add(job.metadata.uid)
        return [(job.metadata.namespace, job.metadata.labels[EXPERIMENT_LABEL])]

    def _on_trial(self, old: Trial | None, new: Trial | None) -> list[Key]:
        """Trials that a person has deleted or a program has written a result of; the others are this
        controller's own writes."""
        if old is None:
            return []
        if new is not None:
            same = old.metadata.generation == new.metadata.generation
            return [] if same else [(new.metadata.namespace, new.spec.experiment)]
        for owner in old.metadata.owners:
            self._memories.pop(owner.uid, None)
        return [(old.metadata.namespace, old.spec.experiment)]


@dataclass
class _Progress:
    """What a trial's job has reported so far."""

    order: int = 0
    step: int = 0
    latest: float | None = None
    written: float = -math.inf
    last: dict[str, float] = field(default_factory=dict[str, float])
    least: dict[str, float] = field(default_factory=dict[str, float])
    most: dict[str, float] = field(default_factory=dict[str, float])
    not_finite: set[str] = field(default_factory=set[str])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    steps: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])

    def add(self, point: MetricPoint) -> int | None:
        """Take a point; its step, which is the number of its metric's points where none was given.
        None: its metric has a point of that step (another rank, or a step that was done again)."""
        self.order = point.order
        name, value = point.name, point.value
        if point.step is not None:
            if (name, point.step) in self.steps:
                return None
            self.steps.add((name, point.step))
        self.counts[name] = self.counts.get(name, 0) + 1
        step = self.counts[name] if point.step is None else point.step
        if not math.isfinite(value):
            self.not_finite.add(name)
            return step
        self.last[name] = value
        self.least[name] = min(value, self.least.get(name, math.inf))
        self.most[name] = max(value, self.most.get(name, -math.inf))
        return step

    def value(self, objective: Any) -> float | None:
        """Of an objective; None while there is no finite report."""
        which = objective.value
        if which == "best":
            which = "max" if objective.direction == "maximize" else "min"
        return {"last": self.last, "min": self.least, "max": self.most}[which].get(objective.metric)

    def violation(self, metric: str, least: float | None, most: float | None) -> float:
        """By how much a bound is violated; a metric that was not reported violates it by 1."""
        value = self.last.get(metric)
        if value is None:
            return 1.0
        return max(
            -math.inf if least is None else least - value, -math.inf if most is None else value - most
        )

    def shown(self) -> dict[str, Any]:
        """The fields of a trial's status that say how far it is."""
        fields: dict[str, Any] = {"reports": self.order, "step": max(0, self.step)}
        if self.latest is not None and math.isfinite(self.latest):
            fields["latest"] = self.latest
        return fields


class _Memory:
    """What the controller keeps of an experiment; follows from the store. Counts, sums and the best
    trials are kept up to date trial by trial: no event costs a pass over all trials."""

    def __init__(self, experiment: Experiment, trials: Sequence[Trial]) -> None:
        self._spec = experiment.spec
        self.trials: dict[int, Trial] = {}
        self.active: dict[int, Trial] = {}
        self.leaving: dict[int, Key] = {}
        """Trials that have ended to the keys of their jobs, which have not."""
        self.progress: dict[int, _Progress] = {}
        self.collecting: set[int] = set()
        """Trials that wait, after the end of their job, until its last points are stored."""
        self.ended = 0
        """The order of the trial that ended last."""
        self.started = 0.0
        """When the first trial was created; 0: there is none."""
        self.node_seconds = 0.0
        """Of the starts that have ended."""
        self.last_failure: Trial | None = None
        self._phases: Counter[str] = Counter()
        self._best: list[Trial] = []
        self._outputs: list[tuple[float, int]] = []
        """Of ended trials that may have an output folder: minus the score, and the number."""
        for trial in trials:
            self._count(trial)
        self._best = _front(self._spec, [each for each in trials if _is_good(each)])
        self._shown: tuple[BestTrial, ...] | None = None
        self.search: Search | None = None
        self.stopping = Stopping(experiment.spec)
        self.rung_results = 0
        recorded = ((rung, trial.spec.number) for trial in trials for rung in trial.status.rungs)
        for rung, number in sorted(recorded, key=lambda pair: pair[0].order):
            self.stopping.recorded(number, Reached(rung.rung, rung.value))
            self.rung_results = rung.order

    def keep(self, trial: Trial) -> None:
        """Take the trial as it is stored now."""
        before = self.trials.get(trial.spec.number)
        self._count(trial)
        if _is_good(trial) and (before is None or not _is_good(before)):
            self._best = _front(self._spec, sorted([*self._best, trial], key=_number_of))
            self._shown = None

    def rank(self, number: int) -> int | None:
        """Of a trial within the experiment, at most `_RANKS`; None: trials are not compared at rungs."""
        rank = self.stopping.rank(number)
        return None if rank is None else min(rank, _RANKS)

    def counts(self) -> TrialCounts:
        """Trials by phase."""
        names = {"EarlyStopped": "early_stopped", "MetricsUnavailable": "metrics_unavailable"}
        return TrialCounts(**{names.get(p, p.lower()): n for p, n in self._phases.items()})

    def best(self) -> tuple[BestTrial, ...]:
        """The trials that no other beats, by number."""
        if self._shown is None:
            self._shown = tuple(
                BestTrial(
                    trial=each.metadata.name,
                    number=each.spec.number,
                    parameters=each.spec.parameters,
                    values=each.status.values,
                )
                for each in self._best[:_MOST_BEST]
            )
        return self._shown

    def surplus(self, most: int) -> list[Trial]:
        """The ended trials beyond the `most` best ones that no other trial may continue from."""
        if len(self._outputs) <= most:
            return []
        parents = {each.spec.parent for each in self.active.values()}
        beyond = [self.trials[number] for _, number in self._outputs[most:]]
        return [t for t in beyond if t.status.job not in parents and not self._newest_of_member(t)]

    def dropped(self, number: int) -> None:
        """The trial has no output folder any more."""
        self._outputs = [each for each in self._outputs if each[1] != number]

    def _newest_of_member(self, trial: Trial) -> bool:
        """Population based training: whether it is the last ended trial of its member."""
        if self._spec.algorithm.name != "pbt" or self._spec.max_trials == len(self.trials):
            return False
        later = self.trials.get(trial.spec.number + settings_of(self._spec.algorithm)["populationSize"])
        return later is None or not later.status.order

    def _count(self, trial: Trial) -> None:
        before, number = self.trials.get(trial.spec.number), trial.spec.number
        if before is not None:
            self._phases[before.status.phase] -= 1
            self.node_seconds -= before.status.node_seconds
        if trial.status.order and (before is None or not before.status.order):
            insort(self._outputs, (-scored(self._spec, _result(trial)), number))
        self.trials[number] = trial
        self._phases[trial.status.phase] += 1
        self.node_seconds += trial.status.node_seconds
        self.ended = max(self.ended, trial.status.order)
        created = trial.metadata.created
        self.started = min(self.started, created) if self.started else created
        failed = trial.status.phase in ("Failed", "MetricsUnavailable")
        if failed and (self.last_failure is None or _order(self.last_failure) < _order(trial)):
            self.last_failure = trial


@dataclass(frozen=True)
class _Ending:
    phase: Phase
    reason: str
    message: str


def _ending(experiment: Experiment, memory: _Memory, now: float) -> _Ending | None:
    """How the experiment ends now; None: it goes on."""
    spec, counts = experiment.spec, memory.counts()
    if spec.cancelled:
        return _Ending("Cancelled", "Cancelled", "it has been cancelled")
    if reached := _goal(experiment, memory):
        return _Ending("Succeeded", "GoalReached", reached)
    failed = counts.failed + counts.metrics_unavailable
    if spec.max_failed is not None and failed >= spec.max_failed:
        return _Ending("Failed", "TooManyFailures", _failures(memory, failed))
    budget = spec.budget
    if budget.wall_time is not None and memory.started and now >= memory.started + budget.wall_time:
        return _completion(experiment, memory, f"the wall time {budget.wall_time.text()} is used up")
    return None


def _completion(experiment: Experiment, memory: _Memory, why: str) -> _Ending:
    """Succeeded with at least one good trial, else Failed."""
    best = memory.best()
    if not best:
        counts = memory.counts()
        failed = counts.failed + counts.metrics_unavailable
        detail = _failures(memory, failed) if failed else "no trial has a value"
        return _Ending("Failed", "NoGoodTrial", f"{why}; {detail}")
    return _Ending("Succeeded", "Completed", f"{why}; {_praise(experiment, best)}")


def _failures(memory: _Memory, failed: int) -> str:
    last = memory.last_failure
    assert last is not None
    if failed == 1:
        return f"trial {last.metadata.name} failed: {last.status.message}"
    return f"{failed} trials failed, the last ({last.metadata.name}): {last.status.message}"


def _goal(experiment: Experiment, memory: _Memory) -> str:
    objective = experiment.spec.objectives[0]
    if len(experiment.spec.objectives) > 1 or objective.goal is None:
        return ""
    for best in memory.best():
        value = best.values[0]
        there = value >= objective.goal if objective.direction == "maximize" else value <= objective.goal
        if there:
            return f"{best.trial} reached the goal: {objective.metric}={value:.6g}"
    return ""


def _praise(experiment: Experiment, best: Sequence[BestTrial]) -> str:
    objectives = experiment.spec.objectives
    if len(objectives) != 1:
        return f"{len(best)} trials are on the Pareto front"
    return f"the best is {best[0].trial} with {objectives[0].metric}={best[0].values[0]:.6g}"


def _is_good(trial: Trial) -> bool:
    """Whether it can be the best: it has succeeded within the constraints."""
    return trial.status.phase == "Succeeded" and all(each <= 0 for each in trial.status.violations)


def _front(spec: ExperimentSpec, good: Sequence[Trial]) -> list[Trial]:
    """Of trials by number those that no other beats."""
    return [good[at] for at in pareto(spec, [each.status.values for each in good])]


def _status(
    experiment: Experiment, memory: _Memory, now: float, ending: _Ending | None
) -> ExperimentStatus:
    best = memory.best()
    counts = memory.counts()
    fields: dict[str, Any] = {
        "trials": counts,
        "suggested": max(experiment.status.suggested, 1 + next(reversed(memory.trials), -1)),
        "best": best,
        "node_seconds": memory.node_seconds,
        "started": memory.started,
        "observed_generation": experiment.metadata.generation,
    }
    if ending is not None:
        fields |= {"phase": ending.phase, "reason": ending.reason, "message": ending.message}
        fields["finished"] = now
    elif experiment.spec.suspend:
        message = f"{len(memory.active)} trials are suspended; `resume` continues them"
        fields |= {"phase": "Suspended", "reason": "Suspended", "message": message}
    else:
        most = experiment.spec.max_trials
        message = (
            f"{counts.ended}{f' of {most}' if most else ''} trials have ended, {counts.running} run"
        )
        message += f"; {_praise(experiment, best)}" if best else ""
        fields |= {"phase": "Running", "reason": "", "message": message}
    return msgspec.structs.replace(experiment.status, **fields)


def _node_seconds(job: Job, now: float) -> float:
    spent = job.status.node_time
    running = max(0.0, now - spent.since) * spent.nodes if spent.nodes else 0.0
    return spent.node_seconds + running


def _job_name(trial: Trial) -> str:
    retries = trial.status.retries
    return f"{trial.metadata.name}-r{retries}" if retries else trial.metadata.name


def _order(trial: Trial) -> int:
    return trial.status.order


def _number_of(trial: Trial) -> int:
    return trial.spec.number


def _asked(trial: Trial, parent: int | None) -> Asked:
    spec = trial.spec
    chosen = Suggestion(spec.parameters, parent=parent if spec.parent else None, origin=spec.origin)
    return Asked(spec.number, chosen, spec.after)


def _result(trial: Trial) -> Result:
    status = trial.status
    states = {"Succeeded": "complete", "EarlyStopped": "stopped"}
    state: Any = states.get(status.phase, "failed")
    return Result(state, status.values, status.violations, status.step)


def _inside(experiment: Experiment, parameters: Point) -> Point | None:
    """The values of this experiment's parameters; None when one lies outside its range."""
    try:
        return {
            each.name: read_value(each, parameters[each.name])
            for each in experiment.spec.parameters
            if each.name in parameters
        }
    except ValueError:
        return None


def _on_spec(old: Experiment | None, new: Experiment | None) -> list[Key]:
    """Not on this controller's own writes."""
    if old is not None and new is not None and old.metadata.generation == new.metadata.generation:
        return []
    return [] if new is None else [new.key]
