"""Katib's Experiment (`kubeflow.org/v1beta1`, `v1alpha3`) as Shoal's, and its status in Katib's words.

The trial template of a batch Job becomes the template of Shoal's Job: one task per pod, made from the
primary container. `docs/search.md` lists how algorithms and settings are mapped, and where Shoal
differs. What has no meaning here is left out and named in a note; what would change the result is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from shoal.compat.batch import job_template
from shoal.compat.documents import Converted, Converter, Reader, mapping
from shoal.compat.gotemplate import rendered_template
from shoal.objects.errors import Invalid
from shoal.objects.experiment import Experiment, Objective
from shoal.objects.meta import API_VERSION
from shoal.objects.nearest import did_you_mean
from shoal.objects.trial import Trial

__all__ = ["ALGORITHMS", "VERSIONS", "convert", "status_of"]

VERSIONS = ("kubeflow.org/v1beta1", "kubeflow.org/v1alpha3")

ALGORITHMS: Mapping[str, tuple[str, dict[str, Any], Mapping[str, str]]] = {
    "random": ("random", {}, {"random_state": "seed"}),
    "grid": ("grid", {}, {}),
    "tpe": (
        "tpe",
        {"multivariate": False, "group": False},
        {
            "n_startup_trials": "nStartupTrials", "n_ei_candidates": "nEiCandidates",
            "n_EI_candidates": "nEiCandidates", "random_state": "seed", "gamma": "", "prior_weight": "",
        },
    ),
    "multivariate-tpe": (
        "tpe",
        {},
        {
            "n_startup_trials": "nStartupTrials", "n_ei_candidates": "nEiCandidates",
            "random_state": "seed",
        },
    ),
    "bayesianoptimization": (
        "gp",
        {},
        {
            "n_initial_points": "nStartupTrials", "random_state": "seed", "base_estimator": "",
            "acq_func": "", "acq_optimizer": "",
        },
    ),
    "cmaes": ("cmaes", {}, {"sigma": "sigma", "random_state": "seed", "restart_strategy": ""}),
    "sobol": ("qmc", {"type": "sobol"}, {}),
    "hyperband": ("random", {}, {"r_l": "", "eta": "", "resource_name": ""}),
    "pbt": (
        "pbt",
        {},
        {
            "n_population": "populationSize", "truncation_threshold": "truncation",
            "resample_probability": "resampleProbability", "suggestion_trial_dir": "",
        },
    ),
}  # fmt: skip
"""Katib's algorithm to Shoal's, its settings there, and names of settings (empty: no counterpart)."""

_UNSUPPORTED = {
    "enas": "neural architecture search is not supported",
    "darts": "neural architecture search is not supported",
}
_STRATEGIES = {"min": "min", "max": "max", "latest": "last"}
_PLACEHOLDER = re.compile(r"\$\{trialParameters\.([^{}]*)\}")
_TRIAL_FACT = re.compile(
    r"\$\{trialSpec\.(Name|Namespace|Kind|APIVersion|Labels|Annotations)(?:\[([^\]]*)\])?\}"
)
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def convert(document: Mapping[str, Any]) -> Converted:
    """Shoal's Experiment for Katib's.

    Raises:
        Invalid: with everything that is wrong or has no counterpart.
    """
    reader = Reader(document)
    converter = _Experiment(reader)
    made = converter.document()
    reader.check(f"the Katib experiment {reader.text('metadata', 'name') or '(no name)'}")
    return Converted(made, tuple(dict.fromkeys(reader.notes)))


class _Experiment(Converter):
    """One conversion; problems and notes go to the reader."""

    scraped: dict[str, Any] | None = None
    """The port of the endpoint that is read."""

    def document(self) -> dict[str, Any]:
        """The Experiment as a document."""
        self._metadata()
        version_one = self.reader.text("apiVersion") == VERSIONS[1]
        names = self._parameters()
        spec: dict[str, Any] = {
            "objectives": [self._objective()],
            "parameters": names,
            **self._algorithm(names),
            "metricsCollector": self._collector(),
            **self._counts(),
        }
        template = self._go_template(names) if version_one else self._template(names)
        spec["template"] = self._with_port(template)
        if self.reader.get("spec", "nasConfig") is not None:
            self.reader.wrong("spec.nasConfig", "neural architecture search is not supported")
        self._resume_policy()
        return {
            "apiVersion": API_VERSION,
            "kind": "Experiment",
            "metadata": self._kept_metadata(),
            "spec": spec,
        }

    def _metadata(self) -> None:
        name = self.reader.text("metadata", "name")
        if len(name) > 40 or not _NAME.fullmatch(name):
            self.reader.wrong(
                "metadata.name",
                f"{name!r} is no name of an experiment: at most 40 lower-case letters, digits, dashes",
            )

    def _kept_metadata(self) -> dict[str, Any]:
        given = mapping(self.reader.get("metadata"))
        return {
            key: given[key] for key in ("name", "namespace", "labels", "annotations") if given.get(key)
        }

    def _objective(self) -> dict[str, Any]:
        direction = self.reader.text("spec", "objective", "type")
        if direction not in ("minimize", "maximize"):
            self.reader.wrong("spec.objective.type", f"wants minimize or maximize; found {direction!r}")
        metric = self.reader.text("spec", "objective", "objectiveMetricName")
        goal = self.reader.get("spec", "objective", "goal")
        strategies = {
            str(each.get("name")): str(each.get("value"))
            for each in self.reader.items("spec", "objective", "metricStrategies")
        }
        strategy = strategies.get(metric, "")
        if strategy and strategy not in _STRATEGIES:
            self.reader.wrong(
                "spec.objective.metricStrategies", f"{strategy!r} is not min, max or latest"
            )
        made: dict[str, Any] = {"metric": metric, "direction": direction}
        if goal is not None:
            made["goal"] = self.reader.number(goal, "spec.objective.goal")
        if strategy in _STRATEGIES:
            made["value"] = _STRATEGIES[strategy]
        return made

    def _parameters(self) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []
        for at, each in enumerate(self.reader.items("spec", "parameters")):
            made.append(self._parameter(each, f"spec.parameters[{at}]"))
        if not made and self.reader.get("spec", "nasConfig") is None:
            self.reader.wrong("spec.parameters", "an experiment has at least one parameter")
        return made

    def _parameter(self, given: Mapping[str, Any], path: str) -> dict[str, Any]:
        name, kind = str(given.get("name", "")), str(given.get("parameterType", ""))
        space = mapping(given.get("feasibleSpace"))
        if kind in ("discrete", "categorical"):
            choices = [str(each) for each in cast("Sequence[Any]", space.get("list") or ())]
            return {"name": name, "type": "categorical", "choices": choices}
        if kind not in ("double", "int"):
            hint = did_you_mean(kind, ("double", "int", "discrete", "categorical"))
            self.reader.wrong(f"{path}.parameterType", f"{kind!r} is no type of a parameter{hint}")
            return {"name": name, "type": "float"}
        made: dict[str, Any] = {"name": name, "type": "float" if kind == "double" else "int"}
        for bound in ("min", "max", "step"):
            if space.get(bound) not in (None, ""):
                made[bound] = self.reader.number(space[bound], f"{path}.feasibleSpace.{bound}")
        distribution = str(space.get("distribution") or "uniform")
        if distribution not in ("uniform", "logUniform", "normal", "logNormal"):
            self.reader.wrong(
                f"{path}.feasibleSpace.distribution", f"{distribution!r} is no distribution"
            )
        if distribution in ("normal", "logNormal"):
            self.reader.note(f"parameter {name}: {distribution} is searched uniformly within its bounds")
        if distribution in ("logUniform", "logNormal"):
            made["log"] = True
            if made.pop("step", None) is not None:
                self.reader.note(f"parameter {name}: a logarithmic parameter has no step")
        return made

    def _algorithm(self, parameters: list[dict[str, Any]]) -> dict[str, Any]:
        name = self.reader.text("spec", "algorithm", "algorithmName")
        if name in _UNSUPPORTED:
            self.reader.wrong("spec.algorithm.algorithmName", f"{name}: {_UNSUPPORTED[name]}")
            return {}
        if name not in ALGORITHMS:
            hint = did_you_mean(name, ALGORITHMS)
            self.reader.wrong("spec.algorithm.algorithmName", f"there is no algorithm {name!r}{hint}")
            return {}
        ours, fixed, names = ALGORITHMS[name]
        given = self._settings("algorithm", names)
        made: dict[str, Any] = {"name": ours}
        settings = dict(fixed)
        for setting, value in given.items():
            if names[setting] == "seed":
                made["seed"] = int(self.reader.number(value, f"setting {setting}"))
            elif names[setting]:
                settings[names[setting]] = value
            elif name != "hyperband":
                self.reader.note(f"algorithm {name}: the setting {setting} has no counterpart")
        if settings:
            made["settings"] = settings
        stopping = self._early_stopping()
        if name == "hyperband":
            stopping = self._hyperband(given, parameters)
        return {"algorithm": made, **({"earlyStopping": stopping} if stopping else {})}

    def _hyperband(self, given: Mapping[str, str], parameters: list[dict[str, Any]]) -> dict[str, Any]:
        """Katib gives each trial its resource as a parameter; here each trial may use all of it, and is
        stopped early: the parameter becomes a constant."""
        resource = given.get("resource_name", "")
        names = [each["name"] for each in parameters]
        if "r_l" not in given or resource not in names:
            self.reader.wrong(
                "spec.algorithm.algorithmSettings",
                f"hyperband wants r_l, and resource_name as one of the parameters {', '.join(names)}",
            )
            return {}
        most = int(self.reader.number(given["r_l"], "setting r_l"))
        self.constants[resource] = str(most)
        parameters[:] = [each for each in parameters if each["name"] != resource]
        self.reader.note(
            f"hyperband: every trial gets {resource}={most} and is stopped early by its reports per step"
        )
        eta = int(self.reader.number(given.get("eta", "3"), "setting eta"))
        return {"name": "hyperband", "settings": {"maxResource": most, "reductionFactor": eta}}

    def _early_stopping(self) -> dict[str, Any]:
        name = self.reader.text("spec", "earlyStopping", "algorithmName")
        if not name:
            return {}
        if name != "medianstop":
            hint = did_you_mean(name, ("medianstop",))
            self.reader.wrong("spec.earlyStopping.algorithmName", f"there is no rule {name!r}{hint}")
            return {}
        names = {"min_trials_required": "minTrials", "start_step": "startStep"}
        given = self._settings("earlyStopping", names)
        settings = {"minTrials": 3, "startStep": 4} | {
            names[key]: int(self.reader.number(value, f"setting {key}")) for key, value in given.items()
        }
        return {"name": "median", "settings": settings}

    def _settings(self, section: str, known: Mapping[str, str]) -> dict[str, str]:
        path = f"spec.{section}.algorithmSettings"
        given = {
            str(each.get("name")): str(each.get("value"))
            for each in self.reader.items("spec", section, "algorithmSettings")
        }
        for name in given:
            if name not in known:
                self.reader.wrong(path, f"there is no setting {name}{did_you_mean(name, known)}")
        return {name: value for name, value in given.items() if name in known}

    def _counts(self) -> dict[str, Any]:
        made: dict[str, Any] = {"parallel": self.reader.count("spec", "parallelTrialCount", default=3)}
        most = self.reader.get("spec", "maxTrialCount")
        if most is not None:
            made["maxTrials"] = self.reader.count("spec", "maxTrialCount")
            made["parallel"] = min(made["parallel"], made["maxTrials"])
        failed = self.reader.get("spec", "maxFailedTrialCount")
        if failed is not None:
            most_failed = max(1, self.reader.count("spec", "maxFailedTrialCount"))
            if most_failed <= made.get("maxTrials", most_failed):
                made["maxFailed"] = most_failed
            else:
                self.reader.note(
                    f"maxFailedTrialCount {most_failed} is above maxTrialCount: it has no effect"
                )
        return made

    def _collector(self) -> dict[str, Any]:
        spec = mapping(self.reader.get("spec", "metricsCollectorSpec"))
        collector, source = mapping(spec.get("collector")), mapping(spec.get("source"))
        kind = str(collector.get("kind") or "StdOut")
        path = "spec.metricsCollectorSpec.collector.kind"
        made: dict[str, Any] = {}
        if kind in ("None", "Push"):
            kind = "none"
        elif kind not in ("StdOut", "File", "TensorFlowEvent", "PrometheusMetric"):
            self.reader.wrong(path, f"a collector of kind {kind} is not supported: report them, or "
                              "use StdOut, File, TensorFlowEvent or PrometheusMetric")  # fmt: skip
        made["kind"] = kind
        file = mapping(source.get("fileSystemPath"))
        if kind in ("File", "TensorFlowEvent"):
            given = str(
                file.get("path")
                or ("/var/log/katib/metrics.log" if kind == "File" else "/var/log/katib/tfevent")
            )
            made["path"] = given.strip("/")
            self.reader.note(f"metrics are read from $SHOAL_OUTPUT/{made['path']} in place of {given}")
        if kind == "PrometheusMetric":
            made |= self._endpoint(mapping(source.get("httpGet")))
        if file.get("format") == "JSON" and kind == "File":
            made["format"] = "JSON"
        filters = mapping(source.get("filter")).get("metricsFormat") or ()
        if filters and kind in ("StdOut", "File"):
            made["filters"] = [str(each) for each in cast("Sequence[Any]", filters)]
        more = self.reader.get("spec", "objective", "additionalMetricNames") or ()
        if more and kind != "none":
            made["metrics"] = [str(each) for each in cast("Sequence[Any]", more)]
        return made

    def _endpoint(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if str(given.get("scheme") or "HTTP") != "HTTP":
            path = "spec.metricsCollectorSpec.source.httpGet.scheme"
            self.reader.wrong(path, "an endpoint is read with HTTP alone")
        self.scraped = {
            "name": "metrics",
            "port": int(self.reader.number(given.get("port", 8080), "port")),
        }
        self.reader.note("the endpoint is on the port that $SHOAL_PORT_METRICS names: tasks on one "
                         "machine share its ports")  # fmt: skip
        return {"port": "metrics", "path": str(given.get("path") or "/metrics")}

    def _with_port(self, template: dict[str, Any]) -> dict[str, Any]:
        """The template with the port of the endpoint that is read."""
        for role in template.get("spec", {}).get("roles", [])[:1] if self.scraped else ():
            role["ports"] = [*role.get("ports", ()), self.scraped]
        return template

    def _template(self, parameters: list[dict[str, Any]]) -> dict[str, Any]:
        template = mapping(self.reader.get("spec", "trialTemplate"))
        trial = template.get("trialSpec")
        if not isinstance(trial, dict):
            source = "a configMap" if "configMap" in template else "nothing"
            self.reader.wrong(
                "spec.trialTemplate", f"wants trialSpec, the trial's Job itself; found {source}"
            )
            return {}
        spec = cast("dict[str, Any]", trial)
        names = {each["name"] for each in parameters} | set(self.constants)
        values: dict[str, str] = {}
        for at, each in enumerate(self.reader.items("spec", "trialTemplate", "trialParameters")):
            values[str(each.get("name"))] = self._reference(
                str(each.get("reference", "")), names, spec, f"spec.trialTemplate.trialParameters[{at}]"
            )
        if template.get("successCondition") or template.get("failureCondition"):
            self.reader.note("successCondition and failureCondition are those of the Job")

        def substituted(text: str) -> str:
            parts: list[str] = []
            end = 0
            for match in _PLACEHOLDER.finditer(text):
                parts.append(text[end : match.start()].replace("${", "$${"))
                if match[1] not in values:
                    hint = did_you_mean(match[1], values)
                    self.reader.wrong(
                        "spec.trialTemplate", f"there is no trial parameter {match[1]}{hint}"
                    )
                parts.append(values.get(match[1], ""))
                end = match.end()
            return "".join((*parts, text[end:].replace("${", "$${")))

        container = str(template.get("primaryContainerName") or "")
        return job_template(self.reader, spec, container, substituted)

    def _reference(self, reference: str, names: set[str], trial: Mapping[str, Any], path: str) -> str:
        fact = _TRIAL_FACT.fullmatch(reference)
        if fact is None:
            if reference not in names:
                hint = did_you_mean(reference, names)
                self.reader.wrong(f"{path}.reference", f"there is no parameter {reference!r}{hint}")
            return self.constants.get(reference) or f"${{{reference}}}"
        if fact[1] in ("Labels", "Annotations"):
            given = mapping(mapping(trial.get("metadata")).get(fact[1].lower()))
            if fact[2] not in given:
                self.reader.wrong(
                    f"{path}.reference", f"the trial's Job has no {fact[1].lower()} {fact[2]!r}"
                )
            return str(given.get(fact[2], "")).replace("${", "$${")
        known = {
            "Name": "${trial.name}", "Namespace": "${trial.namespace}",
            "Kind": str(trial.get("kind", "")), "APIVersion": str(trial.get("apiVersion", "")),
        }  # fmt: skip
        return known[fact[1]]

    def _go_template(self, parameters: list[dict[str, Any]]) -> dict[str, Any]:
        raw = self.reader.text("spec", "trialTemplate", "goTemplate", "rawTemplate")
        if not raw:
            self.reader.wrong(
                "spec.trialTemplate", "wants goTemplate.rawTemplate, the trial's Job as text"
            )
            return {}
        names = [each["name"] for each in parameters]
        values = {name: f"${{{name}}}" for name in names} | self.constants
        try:
            document = rendered_template(raw, values)
        except Invalid as error:
            self.reader.wrong("spec.trialTemplate.goTemplate.rawTemplate", error.message)
            return {}
        return job_template(self.reader, document, "", lambda text: text)

    def _resume_policy(self) -> None:
        policy = self.reader.text("spec", "resumePolicy")
        if policy in ("LongRunning", "FromVolume"):
            self.reader.note(f"resumePolicy {policy}: the state is always kept, and a search goes on by "
                             "raising maxTrials before it ends, or by warmStart")  # fmt: skip


def status_of(experiment: Experiment, trials: Sequence[Trial]) -> dict[str, Any]:
    """The status of an experiment in Katib's words: conditions, trial lists and the optimal trial."""
    lists: dict[str, list[str]] = {}
    for trial in sorted(trials, key=lambda each: each.spec.number):
        lists.setdefault(_TRIAL_LISTS[trial.status.phase], []).append(trial.metadata.name)
    status: dict[str, Any] = {"conditions": _conditions(experiment), "trials": len(trials)}
    for name, members in lists.items():
        status[f"{name}TrialList"] = members
        status["trials" + name[0].upper() + name[1:]] = len(members)
    if experiment.status.best:
        best = experiment.status.best[0]
        status["currentOptimalTrial"] = {
            "bestTrialName": best.trial,
            "parameterAssignments": [{"name": k, "value": str(v)} for k, v in best.parameters.items()],
            "observation": {
                "metrics": [
                    _observed(objective, value)
                    for objective, value in zip(experiment.spec.objectives, best.values, strict=False)
                ]
            },
        }
    return status


_TRIAL_LISTS = {
    "Pending": "pending", "Running": "running", "Succeeded": "succeeded", "EarlyStopped": "earlyStopped",
    "Failed": "failed", "MetricsUnavailable": "metricsUnavailable", "Cancelled": "killed",
}  # fmt: skip


def _observed(objective: Objective, value: float) -> dict[str, str]:
    strategy = {"last": "latest", "min": "min", "max": "max"}.get(objective.value)
    strategy = strategy or ("min" if objective.direction == "minimize" else "max")
    return {"name": objective.metric, strategy: repr(value)}


def _conditions(experiment: Experiment) -> list[dict[str, str]]:
    phase, message = experiment.status.phase, experiment.status.message
    reached = {
        "Pending": ("Created",), "Running": ("Created", "Running"), "Suspended": ("Created", "Running"),
        "Succeeded": ("Created", "Succeeded"), "Failed": ("Created", "Failed"),
        "Cancelled": ("Created", "Failed"),
    }[phase]  # fmt: skip
    return [
        {
            "type": each,
            "status": "True",
            "reason": f"Experiment{each}",
            "message": message if each != "Created" else "",
        }
        for each in reached
    ]
