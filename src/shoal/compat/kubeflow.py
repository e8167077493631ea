"""The jobs of Kubeflow's training operator (`kubeflow.org/v1`) and of the MPI operator (`v2beta1`).

A replica type becomes the role of its name in lower case; the tasks get the environment of their
framework from the Job's `runtime`. Defaults and success rules are those of each kind. Different is that
every restart counts against `backoffLimit` (the operators do not count pods that they made anew), and
that the tasks of a collective start again together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from shoal.compat.documents import Converted, Reader, items_of, job_document, mapping, texts
from shoal.compat.pods import primary, role_of
from shoal.objects.nearest import did_you_mean

__all__ = ["KINDS", "VERSIONS", "convert"]

VERSIONS = ("kubeflow.org/v1", "kubeflow.org/v2beta1", "kubeflow.org/v1beta1")
_V2 = "kubeflow.org/v2beta1"
_NO_LIMIT = 100_000
"""Restarts where `backoffLimit` is not written: the operators have no limit then."""
_PERMANENT = tuple(range(1, 128))
"""Exit codes that `restartPolicy: ExitCode` does not try again; those from 128 on it does."""
_PRIORITIES = ("production", "normal", "experiment")


class _Kind(NamedTuple):
    replicas: str
    """The field with a specification for each replica type."""
    types: tuple[str, ...]
    """In the order of ranks."""
    container: str
    port: str
    """The name of the port at which the tasks find each other: the runtime has one of its own."""
    runtime: str
    restart: str = "Never"


KINDS = {
    "TFJob": _Kind(
        "tfReplicaSpecs", ("Chief", "Master", "PS", "Worker", "Evaluator"), "tensorflow", "tfjob-port",
        "tensorflow",
    ),
    "PyTorchJob": _Kind(
        "pytorchReplicaSpecs", ("Master", "Worker"), "pytorch", "pytorchjob-port", "torchrun",
        "OnFailure",
    ),
    "XGBoostJob": _Kind(
        "xgbReplicaSpecs", ("Master", "Worker"), "xgboost", "xgboostjob-port", "xgboost"
    ),
    "JAXJob": _Kind("jaxReplicaSpecs", ("Worker",), "jax", "jaxjob-port", "jax"),
    "PaddleJob": _Kind(
        "paddleReplicaSpecs", ("Master", "Worker"), "paddle", "master", "paddle", "OnFailure"
    ),
    "MPIJob": _Kind("mpiReplicaSpecs", ("Launcher", "Worker"), "mpi", "mpi-port", "mpi"),
}  # fmt: skip


def convert(document: Mapping[str, Any]) -> Converted:
    """The Job of Shoal for one of these kinds.

    Raises:
        Invalid: it holds what has no counterpart.
    """
    reader = Reader(document)
    return _Training(reader, KINDS[reader.text("kind")]).converted()


class _Training:
    """One conversion; problems and notes go to the reader."""

    def __init__(self, reader: Reader, kind: _Kind) -> None:
        self._reader = reader
        self._kind = kind
        self._given = self._replica_types()
        self._restarts: dict[str, str] = {}
        """The restart policy of each role."""

    def converted(self) -> Converted:
        """The document of the Job."""
        reader = self._reader
        roles = [self._role(each) for each in self._kind.types if each in self._given]
        if reader.get("spec", "elasticPolicy") is not None:
            self._make_elastic(roles)
        spec: dict[str, Any] = {
            "runtime": self._kind.runtime, "roles": roles, "restart": self._restart(roles),
            "success": self._success(roles), **self._run_policy(),
        }  # fmt: skip
        self._check_mpi()
        self._count_processes(roles)
        if not roles and not reader.problems:
            reader.wrong(f"spec.{self._kind.replicas}", "there is no replica type")
        return job_document(reader, spec)

    def _count_processes(self, roles: list[dict[str, Any]]) -> None:
        """A number in `nprocPerNode`: torchrun starts so many processes in each task, and the world is
        that of the processes. A word leaves Shoal's number, one process for each device."""
        field = "elasticPolicy" if self._reader.get("spec", "elasticPolicy", "nProcPerNode") else ""
        path = ("spec", field, "nProcPerNode") if field else ("spec", "nprocPerNode")
        given = self._reader.text(*path)
        if given in ("", "auto", "gpu", "cpu"):
            return
        if not given.isdecimal() or int(given) < 1:
            self._reader.wrong(".".join(path), f"wants auto, gpu, cpu or a number; found {given!r}")
            return
        counts = {"PET_NPROC_PER_NODE": given}
        if self._reader.get("spec", "elasticPolicy") is None:
            counts["WORLD_SIZE"] = str(int(given) * sum(role["replicas"] for role in roles))
        for role in roles:
            role["env"] = {**counts, **role.get("env", {})}

    def _check_mpi(self) -> None:
        if self._reader.get("spec", "runLauncherAsWorker"):
            self._reader.wrong("spec.runLauncherAsWorker", "is not supported: add a worker")
        implementation = self._reader.text("spec", "mpiImplementation")
        if implementation not in ("", "OpenMPI"):
            self._reader.wrong(
                "spec.mpiImplementation",
                f"{implementation} is not supported: hosts are named to Open MPI",
            )

    def _replica_types(self) -> dict[str, Mapping[str, Any]]:
        """The specification of each type; its name may be written in any case."""
        known = {each.lower(): each for each in self._kind.types}
        found: dict[str, Mapping[str, Any]] = {}
        field = self._kind.replicas
        for name, given in mapping(self._reader.get("spec", field)).items():
            if name.lower() in known:
                found[known[name.lower()]] = mapping(given)
            else:
                hint = did_you_mean(name, self._kind.types)
                self._reader.wrong(f"spec.{field}.{name}", f"{name!r} is no replica type{hint}")
        if "Chief" in found and "Master" in found:
            self._reader.wrong(f"spec.{field}", "a TFJob has one chief: write Chief or Master")
        return found

    def _role(self, kind: str) -> dict[str, Any]:
        reader, given = self._reader, self._given[kind]
        path = f"spec.{self._kind.replicas}.{kind}"
        pod = mapping(mapping(given.get("template")).get("spec"))
        name = reader.text("spec", "mainContainer") or self._kind.container
        container = primary(reader, path, pod, name, required=self._kind.runtime != "mpi")
        role: dict[str, Any] = {"name": kind.lower()}
        replicas = given.get("replicas")
        replicas = 1 if replicas is None else replicas
        if isinstance(replicas, bool) or not isinstance(replicas, int) or replicas < 1:
            reader.wrong(f"{path}.replicas", f"wants a whole number from 1; found {replicas!r}")
            replicas = 1
        elif kind in ("Chief", "Master", "Launcher") and replicas != 1:
            reader.wrong(f"{path}.replicas", f"there is one {kind}; found {replicas}")
        role["replicas"] = replicas
        workers_wait = self._kind.runtime == "mpi" and kind == "Worker"
        role |= role_of(reader, path, pod, _without_sshd(reader, container), may_wait=workers_wait)
        slots = reader.count("spec", "slotsPerWorker")
        if workers_wait and slots > 1:
            role["env"] = {**role.get("env", {}), "SHOAL_SLOTS": str(slots)}
        launches = kind == "Launcher" and reader.text("apiVersion") == _V2
        default = "OnFailure" if launches else self._kind.restart
        policy = str(given.get("restartPolicy") or default)
        inner = pod.get("restartPolicy")
        if inner and inner != policy:
            reader.note(f"{kind}: restartPolicy {policy} of the replica is used, not the pod's {inner}")
        if policy not in ("Always", "OnFailure", "Never", "ExitCode"):
            hint = did_you_mean(policy, ("Always", "OnFailure", "Never", "ExitCode"))
            reader.wrong(f"{path}.restartPolicy", f"{policy!r} is no restart policy{hint}")
        self._restarts[role["name"]] = policy
        if policy == "ExitCode":
            role["restartRules"] = [{"exitCodes": list(_PERMANENT), "action": "Fail"}]
        self._ports(role, container)
        return role

    def _ports(self, role: dict[str, Any], container: Mapping[str, Any]) -> None:
        ports = [
            {"name": str(each["name"]), "port": each.get("containerPort", 0)}
            for each in items_of(container.get("ports"))
            if each.get("name") and each["name"] != self._kind.port
        ]
        if ports:
            role["ports"] = ports

    def _make_elastic(self, roles: list[dict[str, Any]]) -> None:
        """The workers' `minReplicas` and `maxReplicas`; a missing one is the other, or the replicas."""
        reader = self._reader
        workers = next((each for each in roles if each["name"] == "worker"), None)
        if workers is None:
            reader.wrong("spec.elasticPolicy", "an elastic job has the replica type Worker")
            return
        least, most = (reader.get("spec", "elasticPolicy", f"{each}Replicas") for each in ("min", "max"))
        most = most if most is not None else least if least is not None else workers["replicas"]
        least = least if least is not None else most
        if not (isinstance(least, int) and isinstance(most, int) and 1 <= least <= most):
            reader.wrong(
                "spec.elasticPolicy", f"wants 1 <= minReplicas <= maxReplicas; found {least}, {most}"
            )
            return
        workers |= {"replicas": most, "minReplicas": least}
        backend = reader.text("spec", "elasticPolicy", "rdzvBackend")
        if backend not in ("", "c10d"):
            reader.note(f"the rendezvous is Shoal's own, in place of {backend}")

    def _restart(self, roles: list[dict[str, Any]]) -> dict[str, Any]:
        """One policy for the Job; a role that is never restarted among others has a rule for that."""
        limit = self._reader.get("spec", "runPolicy", "backoffLimit")
        if limit is None:
            limit = self._reader.get("spec", "elasticPolicy", "maxRestarts")
        if set(self._restarts.values()) <= {"Never"}:
            return {"policy": "Never"}
        for role in roles:
            if self._restarts[role["name"]] == "Never":
                role["restartRules"] = [{"exitCodes": list(range(1, 256)), "action": "Fail"}]
        return {"policy": "OnFailure", "limit": _NO_LIMIT if limit is None else limit}

    def _success(self, roles: list[dict[str, Any]]) -> dict[str, Any]:
        names = [each["name"] for each in roles]
        for leader in ("chief", "master", "launcher"):
            if leader in names:
                return {"role": leader}
        if self._kind.runtime == "xgboost":
            self._reader.wrong(f"spec.{self._kind.replicas}", "an XGBoostJob has a Master")
        if self._kind.runtime == "mpi":
            self._reader.wrong(f"spec.{self._kind.replicas}", "an MPIJob has a Launcher")
        policy = "All"
        if self._kind.runtime == "tensorflow" and self._reader.text("spec", "successPolicy") == "":
            policy = "First"
        elif self._reader.get("spec", "elasticPolicy") is not None:
            policy = "Any"
        return {"role": "worker", "policy": policy}

    def _run_policy(self) -> dict[str, Any]:
        reader = self._reader
        policy = mapping(reader.get("spec", "runPolicy"))
        made: dict[str, Any] = {}
        clean = policy.get("cleanPodPolicy") or reader.text("spec", "cleanPodPolicy") or "None"
        if clean not in ("None", "Running", "All"):
            hint = did_you_mean(str(clean), ("None", "Running", "All"))
            reader.wrong("spec.runPolicy.cleanPodPolicy", f"{clean!r} is no clean-up policy{hint}")
        made["cleanUp"] = clean
        if policy.get("ttlSecondsAfterFinished") is not None:
            made["ttlAfterFinished"] = f"{reader.count('spec', 'runPolicy', 'ttlSecondsAfterFinished')}s"
        if policy.get("activeDeadlineSeconds") is not None:
            made["limits"] = {
                "wallTime": f"{reader.count('spec', 'runPolicy', 'activeDeadlineSeconds')}s"
            }
        if policy.get("suspend"):
            made["suspend"] = True
        manager = str(policy.get("managedBy") or "")
        if manager not in ("", "kubeflow.org/training-operator", "kubeflow.org/mpi-operator"):
            reader.wrong("spec.runPolicy.managedBy", f"{manager} runs this job, not Shoal")
        scheduling = mapping(policy.get("schedulingPolicy"))
        if scheduling.get("minAvailable") is not None:
            reader.note("minAvailable is left out: a gang starts whole, or with the minReplicas of an "
                        "elasticPolicy")  # fmt: skip
        if scheduling.get("queue"):
            made["queue"] = str(scheduling["queue"])
        priority = scheduling.get("priorityClass")
        if priority in _PRIORITIES:
            made["priority"] = priority
        elif priority:
            reader.note(f"the priority class {priority} is left out: {', '.join(_PRIORITIES)} are known")
        return made


def _without_sshd(reader: Reader, container: Mapping[str, Any]) -> dict[str, Any]:
    """The container, and without its program where that is the SSH daemon for MPI's launcher."""
    command = texts(container.get("command"))
    if not command or command[0].rpartition("/")[2] != "sshd":
        return dict(container)
    reader.note("sshd is not started: a remote shell of Shoal runs beside each worker")
    return {name: value for name, value in container.items() if name not in ("command", "args")}
