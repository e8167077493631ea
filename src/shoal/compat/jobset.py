"""JobSets (`jobset.x-k8s.io/v1alpha2`) and TrainJobs of Kubeflow (`trainer.kubeflow.org/v1alpha1`).

The replicated jobs of a set become roles of one Job; a TrainJob becomes a Job with the runtime of the
published training runtime that it names. What depends on the order of start, on the index of a pod or on
a domain for each Job is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.compat.documents import Converted, Reader, items_of, job_document, mapping, texts
from shoal.compat.pods import primary, role_of
from shoal.objects.nearest import did_you_mean

__all__ = ["JOB_SET", "TRAIN_JOB", "convert_set", "convert_train_job"]

JOB_SET = ("jobset.x-k8s.io/v1alpha2", "JobSet")
TRAIN_JOB = ("trainer.kubeflow.org/v1alpha1", "TrainJob")
_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_CONTROLLER = "jobset.sigs.k8s.io/jobset-controller"
_BACKOFF_LIMIT = 6
"""Kubernetes' default."""
_RUNTIMES = {
    "torch-distributed": "torchrun",
    "jax-distributed": "jax",
    "xgboost-distributed": "xgboost",
}
_RESERVED = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")


def convert_set(document: Mapping[str, Any]) -> Converted:
    """The Job of Shoal for a JobSet.

    Raises:
        Invalid: it holds what has no counterpart.
    """
    reader = Reader(document)
    jobs = reader.items("spec", "replicatedJobs")
    if not jobs:
        reader.wrong("spec.replicatedJobs", "a set has at least one job")
    roles = [_role(reader, job, f"spec.replicatedJobs[{at}]") for at, job in enumerate(jobs)]
    spec: dict[str, Any] = {
        "roles": roles,
        "restart": _restart(reader, jobs),
        "success": _success(reader, [role["name"] for role in roles]),
    }
    if reader.get("spec", "suspend"):
        spec["suspend"] = True
    if reader.get("spec", "ttlSecondsAfterFinished") is not None:
        spec["ttlAfterFinished"] = f"{reader.count('spec', 'ttlSecondsAfterFinished')}s"
    if reader.text("spec", "managedBy") not in ("", _CONTROLLER):
        reader.wrong("spec.managedBy", f"{reader.text('spec', 'managedBy')} runs this set, not Shoal")
    if reader.text("spec", "startupPolicy", "startupPolicyOrder") == "InOrder":
        reader.wrong("spec.startupPolicy", "jobs that start one after the other are not supported")
    if reader.get("spec", "coordinator") is not None:
        reader.note("the coordinator's name is not given: tasks find each other in SHOAL_TASKS")
    if mapping(reader.get("metadata", "annotations")).get(_EXCLUSIVE):
        reader.wrong(f"metadata.annotations.{_EXCLUSIVE}", "a domain for each job is not supported")
    return job_document(reader, spec)


def _role(reader: Reader, job: Mapping[str, Any], path: str) -> dict[str, Any]:
    inner = mapping(mapping(job.get("template")).get("spec"))
    pod = mapping(mapping(inner.get("template")).get("spec"))
    counts = [job.get("replicas", 1), inner.get("parallelism", 1)]
    if any(isinstance(each, bool) or not isinstance(each, int) or each < 1 for each in counts):
        reader.wrong(
            f"{path}.replicas", f"wants whole numbers from 1; found {counts[0]!r}, {counts[1]!r}"
        )
        counts = [1, 1]
    if inner.get("completions", counts[1]) != counts[1]:
        reader.wrong(f"{path}.template.spec.completions", "is not the parallelism: all pods run at once")
    if job.get("dependsOn"):
        reader.wrong(f"{path}.dependsOn", "jobs that wait for one another are not supported")
    role: dict[str, Any] = {
        "name": str(job.get("name") or "job"),
        "replicas": counts[0] * counts[1],
        **role_of(reader, path, pod, primary(reader, path, pod, "")),
    }
    if any("JOB_COMPLETION_INDEX" in word for word in (*role.get("command", ()), *role.get("args", ()))):
        reader.wrong(f"{path}.command", "reads JOB_COMPLETION_INDEX: read SHOAL_INDEX, which counts the "
                     "pods of all replicas of the job")  # fmt: skip
    return role


def _restart(reader: Reader, jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """With a failure policy the set starts again as one; without, what its jobs allow themselves."""
    policy = reader.get("spec", "failurePolicy")
    inner = [mapping(mapping(each.get("template")).get("spec")) for each in jobs]
    limits = [each.get("backoffLimit", _BACKOFF_LIMIT) for each in inner]
    if policy is not None:
        if mapping(policy).get("rules"):
            reader.wrong("spec.failurePolicy.rules", "rules by reason and by job are not supported")
        if any(limits):
            reader.note("backoffLimit of the jobs is not used: each failure starts the set again")
        limit = reader.count("spec", "failurePolicy", "maxRestarts", default=0)
        return {"policy": "OnFailure", "limit": limit, "scope": "Gang"}
    if len(set(map(str, limits))) > 1:
        reader.note("one backoffLimit counts for all jobs: the largest")
    whole = [each for each in limits if isinstance(each, int)]
    return {"policy": "OnFailure", "limit": max(whole, default=_BACKOFF_LIMIT), "scope": "Task"}


def _success(reader: Reader, names: list[str]) -> dict[str, Any]:
    policy = mapping(reader.get("spec", "successPolicy"))
    operator = str(policy.get("operator") or "All")
    if operator not in ("All", "Any"):
        hint = did_you_mean(operator, ("All", "Any"))
        reader.wrong("spec.successPolicy.operator", f"{operator!r} is no operator{hint}")
    targets = texts(policy.get("targetReplicatedJobs")) or names
    for unknown in [each for each in targets if each not in names]:
        hint = did_you_mean(unknown, names)
        reader.wrong("spec.successPolicy.targetReplicatedJobs", f"there is no job {unknown!r}{hint}")
    if len(targets) == 1:
        return {"role": targets[0], "policy": "All"}
    if set(targets) != set(names) or operator == "Any":
        reader.wrong("spec.successPolicy", "names one job, or all with the operator All")
    return {}


def convert_train_job(document: Mapping[str, Any]) -> Converted:
    """The Job of Shoal for a TrainJob that names a published runtime.

    Raises:
        Invalid: it holds what has no counterpart.
    """
    reader = Reader(document)
    name = reader.text("spec", "runtimeRef", "name")
    if name not in _RUNTIMES:
        hint = did_you_mean(name, _RUNTIMES)
        known = ", ".join(_RUNTIMES)
        reader.wrong("spec.runtimeRef.name", f"the runtime {name!r} is not known{hint} (known: {known})")
    if reader.get("spec", "initializer") is not None:
        reader.wrong("spec.initializer", "initializers are not supported: do their work in the command")
    for field in ("podTemplateOverrides", "podSpecOverrides"):
        if reader.get("spec", field):
            reader.wrong(f"spec.{field}", "is not supported: use runtimePatches")
    if reader.text("spec", "managedBy") not in ("", "trainer.kubeflow.org/trainjob-controller"):
        reader.wrong("spec.managedBy", f"{reader.text('spec', 'managedBy')} runs this job, not Shoal")
    spec: dict[str, Any] = {
        "runtime": _RUNTIMES.get(name, "plain"),
        "roles": [_node(reader)],
        # the runtimes have no failure policy: a failed pod is tried again by its own Job
        "restart": {"policy": "OnFailure", "limit": _BACKOFF_LIMIT},
    }
    if reader.get("spec", "suspend"):
        spec["suspend"] = True
    if reader.get("spec", "activeDeadlineSeconds") is not None:
        spec["limits"] = {"wallTime": f"{reader.count('spec', 'activeDeadlineSeconds')}s"}
    return job_document(reader, spec)


def _node(reader: Reader) -> dict[str, Any]:
    trainer = mapping(reader.get("spec", "trainer"))
    container = {**trainer, "resources": trainer.get("resourcesPerNode")}
    pod: dict[str, Any] = {"containers": [container]}
    for patch in reader.items("spec", "runtimePatches"):
        template = mapping(mapping(patch.get("trainingRuntimeSpec")).get("template"))
        for job in items_of(mapping(template.get("spec")).get("replicatedJobs")):
            inner = mapping(mapping(mapping(job.get("template")).get("spec")).get("template"))
            if job.get("name") == "node":
                pod |= _allowed(reader, mapping(inner.get("spec")))
    role = role_of(reader, "spec.trainer", pod, primary(reader, "spec.trainer", pod, ""))
    for name in [each for each in role.get("env", {}) if each in _RESERVED]:
        reader.wrong("spec.trainer.env", f"{name} is set by the runtime")
    processes = trainer.get("numProcPerNode")
    if isinstance(processes, int) and not isinstance(processes, bool) and processes > 1:
        role["env"] = {**role.get("env", {}), "PET_NPROC_PER_NODE": str(processes)}
    replicas = reader.count("spec", "trainer", "numNodes")
    return {"name": "node", "replicas": max(1, replicas), **role}


def _allowed(reader: Reader, patch: dict[str, Any]) -> dict[str, Any]:
    known = {name: patch[name] for name in ("nodeSelector", "tolerations") if patch.get(name)}
    for name in sorted(patch.keys() - known.keys()):
        reader.note(f"{name} of the runtime's patch is left out")
    return known
