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

from collections.abc import Mapping
from typing import Any, cast

from shoal.compat.documents import Converted
from shoal.objects.errors import Invalid

__all__ = ["Converted", "converted", "is_foreign"]

_GROUPS = (
    "kubeflow.org", "trainer.kubeflow.org", "batch", "batch.volcano.sh", "jobset.x-k8s.io",
)  # fmt: skip


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
    from shoal.compat import batch, jobset, katib, kubeflow, volcano

    kind, version = str(document.get("kind", "")), str(document.get("apiVersion", ""))
    if kind == "Experiment" and version in katib.VERSIONS:
        return katib.convert(document)
    if kind in kubeflow.KINDS and version in kubeflow.VERSIONS:
        return kubeflow.convert(document)
    if (version, kind) == batch.KIND:
        return batch.convert(document)
    if (version, kind) == (volcano.VERSION, "Job"):
        return volcano.convert(document)
    if (version, kind) == jobset.JOB_SET:
        return jobset.convert_set(document)
    if (version, kind) == jobset.TRAIN_JOB:
        return jobset.convert_train_job(document)
    raise Invalid(
        f"manifests of kind {kind or '(none)'} ({version}) are not supported yet",
        hint="supported: Experiment of Katib; " + ", ".join(kubeflow.KINDS) + ", TrainJob of Kubeflow; "
        "Job of Volcano and of Kubernetes; JobSet",
    )
