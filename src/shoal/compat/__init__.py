"""Foreign manifests as objects of Shoal, and their status in the words of their own kind.

People apply what they have: `converted` takes a document of another system and gives Shoal's, with a
note for each difference that does not keep it from being used. What would change the result is refused.
Pure: it imports `objects` alone, and neither reads files nor a clock.

| module | what it converts |
| --- | --- |
| `kubeflow` | TFJob, PyTorchJob, XGBoostJob, JAXJob, PaddleJob, MPIJob of Kubeflow |
| `volcano` | Job of Volcano |
| `jobset` | JobSet, and TrainJob of Kubeflow |
| `batch` | Job of Kubernetes, alone and as the template of a trial |
| `katib` | Experiment of Katib, `kubeflow.org/v1beta1` and `v1alpha3`; `gotemplate` its text templates |
| `pods` | a pod template, as a role |
| `documents` | reading a document, with every problem collected |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from typing import Any, cast

from shoal.compat.documents import Converted
from shoal.objects.errors import Invalid

__all__ = ["Converted", "converted", "is_foreign", "supported"]

_GROUPS = (
    "kubeflow.org", "trainer.kubeflow.org", "batch", "batch.volcano.sh", "jobset.x-k8s.io",
)  # fmt: skip
"""Kept apart from the converters, so that reading objects of Shoal imports none of them."""


def is_foreign(document: object) -> bool:
    """Whether a document is of a system that this package knows."""
    if not isinstance(document, dict):
        return False
    version = cast("dict[str, Any]", document).get("apiVersion")
    return isinstance(version, str) and version.split("/")[0] in _GROUPS


def converted(document: Mapping[str, Any]) -> Converted:
    """The object of Shoal for a foreign document.

    Raises:
        Invalid: its kind is not supported, or it holds what has no counterpart.
    """
    kind, version = str(document.get("kind", "")), str(document.get("apiVersion", ""))
    convert = _converters().get((version, kind))
    if convert is None:
        raise Invalid(
            f"manifests of kind {kind or '(none)'} ({version}) are not supported yet",
            hint=f"supported: {supported()}",
        )
    return convert(document)


def supported() -> str:
    """The kinds that `converted` takes, by API group: `Job (batch, batch.volcano.sh); JobSet (...)`."""
    groups: dict[str, tuple[str, ...]] = {}
    for version, kind in _converters():
        group = version.split("/")[0]
        groups[kind] = tuple(dict.fromkeys((*groups.get(kind, ()), group)))
    kinds: dict[tuple[str, ...], list[str]] = {}
    for kind, of in groups.items():
        kinds.setdefault(of, []).append(kind)
    return "; ".join(f"{', '.join(names)} ({', '.join(of)})" for of, names in kinds.items())


@cache
def _converters() -> dict[tuple[str, str], Callable[[Mapping[str, Any]], Converted]]:
    """What converts each `apiVersion` and kind."""
    from shoal.compat import batch, jobset, katib, kubeflow, volcano

    return {
        **dict.fromkeys(product(kubeflow.VERSIONS, kubeflow.KINDS), kubeflow.convert),
        **dict.fromkeys(product(katib.VERSIONS, ("Experiment",)), katib.convert),
        jobset.TRAIN_JOB: jobset.convert_train_job,
        batch.KIND: batch.convert,
        (volcano.VERSION, "Job"): volcano.convert,
        jobset.JOB_SET: jobset.convert_set,
    }
