"""Ask and tell: searches for programs of the user, which evaluate the trials themselves.

>>> from shoal.client import Client
>>> experiments = Client.connect().experiments  # doctest: +SKIP
>>> experiments.create("boil", {"minutes": "1..12"}, maximize="taste", trials=20)  # doctest: +SKIP
>>> while trial := experiments.ask("boil"):  # doctest: +SKIP
...     experiments.tell(trial, cook(**trial.spec.parameters))

The experiment is an object of the server like any other, without a template: its state survives the end
of every program, and any number of programs ask. A trial is given to one program; one that a program
took and has no result for is given out again after `release`.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import structs

from shoal.objects.admit import admit
from shoal.objects.errors import Conflict, Invalid, NotFound
from shoal.objects.experiment import EXPERIMENT_LABEL, FINISHED, Experiment
from shoal.objects.experiment_rules import parse_parameter
from shoal.objects.kinds import EXPERIMENT, TRIAL
from shoal.objects.trial import Trial

if TYPE_CHECKING:
    from shoal.client.client import Client

__all__ = ["Experiments"]

_POLL_SECONDS = 0.2


class Experiments:
    """`Client.experiments`; see the module. Thread-safe."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(
        self,
        name: str,
        parameters: Mapping[str, str],
        *,
        namespace: str = "default",
        minimize: str | Sequence[str] = (),
        maximize: str | Sequence[str] = (),
        trials: int | None = None,
        parallel: int | str = "auto",
        algorithm: str = "tpe",
        settings: Mapping[str, Any] | None = None,
        seed: int = 0,
        points: Sequence[Mapping[str, Any]] = (),
    ) -> Experiment:
        """Create an experiment without jobs. `parameters` are ranges as `shoal search --param` takes
        them; `parallel` is how many trials may be taken and have no result at a time.

        Raises:
            Invalid: the space, the objectives or a setting is wrong.
            Exists: there is an experiment of this name.
        """
        from shoal.objects import codec

        objectives = [
            {"metric": metric, "direction": direction}
            for direction, given in (("minimize", minimize), ("maximize", maximize))
            for metric in ((given,) if isinstance(given, str) else given)
        ]
        spec = {
            "objectives": objectives,
            "parameters": codec.builtins([parse_parameter(f"{k}={v}") for k, v in parameters.items()]),
            "algorithm": {"name": algorithm, "settings": dict(settings or {}), "seed": seed},
            "parallel": parallel,
            "points": [dict(each) for each in points],
            **({} if trials is None else {"maxTrials": trials}),
        }
        document = {"metadata": {"name": name}, "spec": spec}
        made: Any = admit(document, EXPERIMENT, namespace=namespace)
        return self._client.create(made)

    def ask(
        self,
        name: str,
        *,
        namespace: str = "default",
        worker: str = "",
        timeout_seconds: float | None = None,
    ) -> Trial | None:
        """Take the next trial; None: the experiment has finished. Waits while all trials are taken and
        the next point needs their results. `worker` names the program; by default host and process.

        Raises:
            NotFound: there is no such experiment.
            Conflict: it runs its trials as jobs.
            TimeoutError: no trial could be taken in time.
        """
        mine = worker or f"{socket.gethostname()}/{os.getpid()}"
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            experiment = self._client.get(Experiment, namespace, name)
            if experiment.spec.template:
                raise Conflict(f"experiment {name} runs its trials as jobs: there is nothing to ask for")
            for trial in self._open(experiment):
                try:
                    return self._client.update(_with(trial, worker=mine))
                except (Conflict, NotFound, Invalid):
                    continue  # another program took it, or it has ended
            if experiment.status.phase in FINISHED:
                return None
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"no trial of experiment {name} is free after {timeout_seconds:g} s")
            time.sleep(_POLL_SECONDS)

    def tell(self, trial: Trial, values: float | Sequence[float] | None, *, message: str = "") -> Trial:
        """Write the result of a trial, one value for each objective in their order; None: it failed, and
        `message` says why. The same result again is fine.

        Raises:
            Invalid: they are not as many finite numbers as there are objectives, or another result is
                written already.
            Conflict: the trial has ended, or another program has taken it since.
        """
        found = () if values is None else self._result(trial, values)
        failed = (message or "its program wrote no value") if values is None else ""

        def change(now: Trial) -> Trial:
            if now.spec.worker != trial.spec.worker:
                taken = f"{now.spec.worker} has it" if now.spec.worker else "it was released"
                raise Conflict(f"trial {now.metadata.name} is no longer this program's: {taken}")
            return _with(now, values=found, failed=failed)

        return self._edit(trial, change)

    def release(self, trial: Trial) -> Trial:
        """Give back a trial that was taken and has no result: `ask` returns it again."""
        return self._edit(trial, lambda now: _with(now, worker=""))

    def _result(self, trial: Trial, values: float | Sequence[float]) -> tuple[float, ...]:
        found = _numbers(values)
        experiment = self._client.get(Experiment, trial.metadata.namespace, trial.spec.experiment)
        metrics = [each.metric for each in experiment.spec.objectives]
        if len(found) != len(metrics):
            names = ", ".join(metrics)
            raise Invalid(f"one value for each of {names}, in this order; found {len(found)} values")
        return found

    def _edit(self, trial: Trial, change: Callable[[Trial], Trial]) -> Trial:
        return self._client.edit(Trial, trial.metadata.namespace, trial.metadata.name, change)

    def _open(self, experiment: Experiment) -> Iterator[Trial]:
        """The trials that no program has taken, by number."""
        meta = experiment.metadata
        selector, cursor, found = f"{EXPERIMENT_LABEL}={meta.name}", "", list[Trial]()
        while True:
            page = self._client.list(TRIAL, namespace=meta.namespace, selector=selector, cursor=cursor)
            found += [record.object for record in page.records]
            cursor = page.cursor
            if not cursor:
                break
        for trial in sorted(found, key=lambda each: each.spec.number):
            if trial.status.phase == "Pending" and not trial.spec.worker:
                yield trial


def _numbers(values: float | Sequence[float]) -> tuple[float, ...]:
    try:
        given = (values,) if isinstance(values, str) or not isinstance(values, Sequence) else values
        numbers = tuple(map(float, given))
    except (TypeError, ValueError):
        raise Invalid(f"the result of a trial is a number or several; found {values!r}") from None
    if not all(map(math.isfinite, numbers)):
        raise Invalid(f"the result of a trial is finite; found {values!r}: tell None if it failed")
    return numbers


def _with(trial: Trial, **fields: Any) -> Trial:
    return structs.replace(trial, spec=structs.replace(trial.spec, **fields))
