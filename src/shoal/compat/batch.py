"""A `batch/v1` Job of Kubernetes as the template of a Job of Shoal: `metadata` and `spec`.

One task is made of the primary container, run as a process: its image and its volumes are left out,
init containers are refused. `completions` above 1 become an array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from shoal.compat.documents import Reader, mapping

__all__ = ["job_template"]

_BACKOFF_LIMIT = 6
"""Kubernetes' default."""


def job_template(
    reader: Reader, job: Mapping[str, Any], container: str, substituted: Callable[[str], str]
) -> dict[str, Any]:
    """The template; `container` names the primary one (empty: the first), `substituted` is applied to
    every text. Problems and notes go to the reader."""
    kind, version = str(job.get("kind", "")), str(job.get("apiVersion", ""))
    if (version, kind) != ("batch/v1", "Job"):
        reader.wrong(
            "spec.trialTemplate.trialSpec.kind",
            f"trials of kind {kind or '(none)'} ({version or 'no apiVersion'}) are not supported yet: "
            "write the trial as a batch/v1 Job",
        )
        return {}
    spec = mapping(job.get("spec"))
    pod = mapping(mapping(spec.get("template")).get("spec"))
    main = _primary(reader, pod, container)
    role: dict[str, Any] = {"command": _texts(main.get("command")), "args": _texts(main.get("args"))}
    role["env"] = _environment(reader, main)
    if main.get("workingDir"):
        role["workingDirectory"] = main["workingDir"]
    if main.get("image"):
        reader.note(f"the image {main['image']} is left out: this cluster runs processes")
    role["resources"] = _resources(reader, mapping(main.get("resources")))
    if pod.get("nodeSelector"):
        role["nodeSelector"] = pod["nodeSelector"]
    limit = spec.get("backoffLimit")
    made: dict[str, Any] = {
        "roles": [{key: value for key, value in role.items() if value not in ("", [], {})}],
        "restart": {"policy": "OnFailure", "limit": _BACKOFF_LIMIT if limit is None else limit},
    }
    completions = spec.get("completions") or 1
    if isinstance(completions, int) and completions > 1:
        parallelism = spec.get("parallelism") or 1
        made["array"] = {"indices": f"0-{completions - 1}", "parallelism": parallelism}
    if spec.get("activeDeadlineSeconds"):
        made["limits"] = {"wallTime": f"{spec['activeDeadlineSeconds']}s"}
    if spec.get("ttlSecondsAfterFinished") is not None:
        reader.note("ttlSecondsAfterFinished is left out: a trial's Job stays with its experiment")
    if pod.get("terminationGracePeriodSeconds"):
        made["gracePeriod"] = f"{pod['terminationGracePeriodSeconds']}s"
    given = mapping(job.get("metadata"))
    metadata = {key: given[key] for key in ("labels", "annotations") if given.get(key)}
    template = {"metadata": metadata, "spec": made} if metadata else {"spec": made}
    return cast("dict[str, Any]", _visited(template, substituted))


def _primary(reader: Reader, pod: Mapping[str, Any], name: str) -> dict[str, Any]:
    containers = [mapping(each) for each in cast("list[Any]", pod.get("containers") or [])]
    found = [each for each in containers if each.get("name") == name] if name else containers[:1]
    if not found:
        names = ", ".join(str(each.get("name")) for each in containers) or "none"
        reader.wrong(
            "spec.trialTemplate.primaryContainerName",
            f"there is no container {name!r} (there are: {names})",
        )
        return {}
    if pod.get("initContainers"):
        reader.wrong(
            "spec.trialTemplate", "init containers are not supported: do their work in the command"
        )
    if len(containers) > 1:
        reader.note(
            f"only the container {found[0].get('name')} runs, not the {len(containers) - 1} beside it"
        )
    if found[0].get("volumeMounts"):
        reader.note("volumes are not mounted: programs write to $SHOAL_OUTPUT")
    return found[0]


def _environment(reader: Reader, container: Mapping[str, Any]) -> dict[str, str]:
    made: dict[str, str] = {}
    for each in cast("list[Any]", container.get("env") or []):
        variable = mapping(each)
        name = str(variable.get("name", ""))
        if "valueFrom" in variable:
            reader.wrong("spec.trialTemplate", f"the variable {name} has valueFrom: write its value")
        else:
            made[name] = str(variable.get("value", ""))
    if container.get("envFrom"):
        reader.wrong("spec.trialTemplate", "envFrom is not supported: write the variables in env")
    return made


def _resources(reader: Reader, given: Mapping[str, Any]) -> dict[str, Any]:
    requests, limits = mapping(given.get("requests")), mapping(given.get("limits"))
    made: dict[str, Any] = {}
    if cpu := requests.get("cpu", limits.get("cpu")):
        made["cpu"] = cpu
    if limits.get("cpu"):
        made["cpuLimit"] = limits["cpu"]
    if memory := limits.get("memory", requests.get("memory")):
        made["memory"] = memory
    for name, amount in {**requests, **limits}.items():
        if name == "nvidia.com/gpu":
            made["gpu"] = int(reader.number(amount, f"resources.{name}"))
        elif name not in ("cpu", "memory"):
            reader.note(f"the resource {name} is left out")
    return made


def _texts(value: Any) -> list[str]:
    return [str(each) for each in cast("list[Any]", value)] if isinstance(value, list) else []


def _visited(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _visited(part, change) for key, part in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_visited(part, change) for part in cast("list[Any]", value)]
    return value
