"""A `batch/v1` Job of Kubernetes as a Job of Shoal, alone or as the template of a trial.

One task is made of the primary container, run as a process: its image and its volumes are left out,
init containers are refused. `completions` above 1 become an array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from shoal.compat.documents import Converted, Reader, job_document, mapping
from shoal.compat.pods import primary, role_of
from shoal.objects.errors import Invalid

__all__ = ["KIND", "convert", "job_template"]

KIND = ("batch/v1", "Job")
_BACKOFF_LIMIT = 6
"""Kubernetes' default."""


def convert(document: Mapping[str, Any]) -> Converted:
    """The Job of Shoal for one of Kubernetes.

    Raises:
        Invalid: it holds what has no counterpart.
    """
    reader = Reader(document)
    spec = _spec(reader, document, "", "spec.template")
    if reader.get("spec", "suspend"):
        spec["suspend"] = True
    if reader.get("spec", "ttlSecondsAfterFinished") is not None:
        spec["ttlAfterFinished"] = f"{reader.count('spec', 'ttlSecondsAfterFinished')}s"
    return job_document(reader, spec)


def job_template(
    reader: Reader, job: Mapping[str, Any], container: str, substituted: Callable[[str], str]
) -> dict[str, Any]:
    """The template of a trial's Job, for a Job of Kubernetes or any other that can be converted.
    `container` names the primary one (empty: the first), `substituted` is applied to every text.
    Problems and notes go to the reader."""
    if (str(job.get("apiVersion", "")), str(job.get("kind", ""))) == KIND:
        made = _spec(reader, job, container, "spec.trialTemplate")
        if mapping(job.get("spec")).get("ttlSecondsAfterFinished") is not None:
            reader.note("ttlSecondsAfterFinished is left out: a trial's Job stays with its experiment")
    else:
        made = _other(reader, job)
    given = mapping(job.get("metadata"))
    metadata = {key: given[key] for key in ("labels", "annotations") if given.get(key)}
    template = {"metadata": metadata, "spec": made} if metadata else {"spec": made}
    return cast("dict[str, Any]", _visited(template, substituted))


def _other(reader: Reader, job: Mapping[str, Any]) -> dict[str, Any]:
    from shoal.compat import converted

    path = "spec.trialTemplate.trialSpec"
    if job.get("kind") == "Experiment":
        reader.wrong(f"{path}.kind", "a trial is a job, not an experiment")
        return {}
    try:
        found = converted(job)
    except Invalid as error:
        for problem in error.problems:
            reader.wrong(f"{path}.{problem.path}", problem.message)
        if not error.problems:
            reader.wrong(f"{path}.kind", error.message)
        return {}
    for note in found.notes:
        reader.note(note)
    made: dict[str, Any] = found.document["spec"]
    made.pop("ttlAfterFinished", None)
    return made


def _spec(reader: Reader, job: Mapping[str, Any], container: str, path: str) -> dict[str, Any]:
    spec = mapping(job.get("spec"))
    pod = mapping(mapping(spec.get("template")).get("spec"))
    limit = spec.get("backoffLimit")
    made: dict[str, Any] = {
        "roles": [role_of(reader, path, pod, primary(reader, path, pod, container))],
        "restart": {"policy": "OnFailure", "limit": _BACKOFF_LIMIT if limit is None else limit},
    }
    completions = spec.get("completions") or 1
    if isinstance(completions, int) and completions > 1:
        parallelism = spec.get("parallelism") or 1
        made["array"] = {"indices": f"0-{completions - 1}", "parallelism": parallelism}
    if spec.get("activeDeadlineSeconds"):
        made["limits"] = {"wallTime": f"{spec['activeDeadlineSeconds']}s"}
    if pod.get("terminationGracePeriodSeconds"):
        made["gracePeriod"] = f"{pod['terminationGracePeriodSeconds']}s"
    return made


def _visited(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _visited(part, change) for key, part in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_visited(part, change) for part in cast("list[Any]", value)]
    return value
