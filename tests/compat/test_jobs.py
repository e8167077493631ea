"""Jobs of Kubeflow, Volcano and Kubernetes as Jobs of Shoal."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
import yaml
from bench.published import DATA

from shoal.compat import Converted, converted, is_foreign
from shoal.compat.kubeflow import KINDS
from shoal.objects.admit import admit
from shoal.objects.errors import Invalid
from shoal.objects.experiment import Experiment
from shoal.objects.experiment_rules import job_document
from shoal.objects.job import Job

MANIFESTS = DATA / "manifests"
CANNOT_RUN_HERE = (
    "the image's own program is not known here",
    "of Volcano's plugins",
    "hosts are named to Open MPI",
    "jobs that wait for one another",
    "a domain for each job",
    "reads JOB_COMPLETION_INDEX",
    "initializers are not supported",
)
"""Why a published manifest is refused where tasks are processes."""
UNSUPPORTED = ("TrainingRuntime", "ClusterTrainingRuntime")


def pod(name: str, *command: str, **container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, "command": [*command], **container}]}}


def replicas(name: str, count: int | None = None, **given: Any) -> dict[str, Any]:
    made = {"template": pod(name, "python", "train.py"), **given}
    return made if count is None else {"replicas": count, **made}


def a_manifest(kind: str, version: str = "kubeflow.org/v1", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "digits"}, "spec": spec}


def job_of(document: dict[str, Any]) -> Job:
    found = admit(converted(document).document)
    assert isinstance(found, Job)
    return found


def problems_of(document: dict[str, Any]) -> str:
    with pytest.raises(Invalid) as caught:
        converted(document)
    return "\n".join(map(str, caught.value.problems)) or caught.value.message


def test_a_pytorchjob() -> None:
    worker = replicas("pytorch", 3)
    limits = {"nvidia.com/gpu": 2, "cpu": "4", "memory": "8Gi", "rdma/hca": 1}
    worker["template"] = pod(
        "pytorch", "python", "train.py", args=["--epochs=3"], image="example/train:1",
        env=[{"name": "A", "value": "b"}], resources={"limits": limits}, volumeMounts=[{"name": "data"}],
        ports=[{"name": "pytorchjob-port", "containerPort": 23456}, {"name": "ui", "containerPort": 80}],
    )  # fmt: skip
    worker["template"]["spec"] |= {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }
    document = a_manifest(
        "PyTorchJob",
        pytorchReplicaSpecs={"master": replicas("pytorch"), "WORKER": worker},
        runPolicy={
            "backoffLimit": 2, "cleanPodPolicy": "All", "ttlSecondsAfterFinished": 60, "suspend": True,
            "activeDeadlineSeconds": 3600,
            "schedulingPolicy": {"queue": "team-a", "priorityClass": "production"},
        },
    )  # fmt: skip
    found = converted(document)
    job = job_of(document)
    spec = job.spec
    assert [(role.name, role.replicas) for role in spec.roles] == [("master", 1), ("worker", 3)]
    role = spec.roles[1]
    assert role.command == ("python", "train.py")
    assert (role.args, role.env) == (("--epochs=3",), {"A": "b"})
    assert (role.resources.gpu, role.resources.cpu, role.resources.memory) == (2, 4000, 8 << 30)
    assert (role.node_selector, role.tolerations[0].key) == ({"disk": "ssd"}, "gpu")
    assert [(port.name, port.port) for port in role.ports] == [("ui", 80)]
    assert (spec.runtime, spec.success.role, spec.clean_up) == ("torchrun", "master", "All")
    assert (spec.restart.policy, spec.restart.limit) == ("OnFailure", 2)
    assert (spec.ttl_after_finished, spec.limits.wall_time) == (60, 3600)
    assert (spec.queue, spec.priority, spec.suspend) == ("team-a", "production", True)
    assert found.notes == (
        "volumes are not mounted: programs write to $SHOAL_OUTPUT",
        "the image example/train:1 is left out: this cluster runs processes",
        "the resource rdma/hca is left out",
    )


def test_an_elastic_pytorchjob_has_a_range_and_ends_with_any_worker() -> None:
    policy = {"minReplicas": 1, "maxReplicas": 4, "maxRestarts": 7, "rdzvBackend": "c10d"}
    specs = {"Worker": replicas("pytorch", 2)}
    job = job_of(a_manifest("PyTorchJob", pytorchReplicaSpecs=specs, elasticPolicy=policy))
    assert (job.spec.roles[0].min_replicas, job.spec.roles[0].replicas) == (1, 4)
    assert (job.spec.success.policy, job.spec.restart.limit) == ("Any", 7)
    only = {"minReplicas": 2}
    job = job_of(a_manifest("PyTorchJob", pytorchReplicaSpecs=specs, elasticPolicy=only))
    assert (job.spec.roles[0].min_replicas, job.spec.roles[0].replicas) == (2, 2)
    wrong = {"minReplicas": 3, "maxReplicas": 2}
    said = problems_of(a_manifest("PyTorchJob", pytorchReplicaSpecs=specs, elasticPolicy=wrong))
    assert "found 3, 2" in said


@pytest.mark.parametrize(
    ("kind", "types", "role", "policy"),
    [
        ("TFJob", ["Chief", "PS", "Worker"], "chief", "All"),
        ("TFJob", ["PS", "Worker"], "worker", "First"),
        ("PyTorchJob", ["Worker"], "worker", "All"),
        ("XGBoostJob", ["Master", "Worker"], "master", "All"),
        ("JAXJob", ["Worker"], "worker", "All"),
        ("PaddleJob", ["Worker"], "worker", "All"),
        ("MPIJob", ["Launcher", "Worker"], "launcher", "All"),
    ],
)
def test_whose_success_decides(kind: str, types: list[str], role: str, policy: str) -> None:
    facts = KINDS[kind]
    specs = {each: replicas(facts.container, 1) for each in types}
    job = job_of(a_manifest(kind, "kubeflow.org/v1", **{facts.replicas: specs}))
    assert [each.name for each in job.spec.roles] == [each.lower() for each in types]
    assert (job.spec.runtime, job.spec.success.role) == (facts.runtime, role)
    assert job.spec.success.policy == policy
    assert job.spec.clean_up == "None", "the operators keep pods unless they are asked not to"


def test_all_workers_of_a_tfjob_where_it_says_so() -> None:
    document = a_manifest(
        "TFJob", successPolicy="AllWorkers", tfReplicaSpecs={"Worker": replicas("tensorflow", 2)}
    )
    assert job_of(document).spec.success.policy == "All"


def test_exit_codes_from_128_on_are_tried_again() -> None:
    """XGBoost's published example: the master never, the workers by their exit code."""
    specs = {
        "Master": replicas("xgboost", 1, restartPolicy="Never"),
        "Worker": replicas("xgboost", 2, restartPolicy="ExitCode"),
    }
    job = job_of(a_manifest("XGBoostJob", xgbReplicaSpecs=specs))
    master, worker = (role.restart_rules[0] for role in job.spec.roles)
    assert (master.action, worker.action) == ("Fail", "Fail")
    assert (max(master.exit_codes), max(worker.exit_codes)) == (255, 127)
    assert (job.spec.restart.policy, job.spec.restart.limit) == ("OnFailure", 100_000)
    specs["Worker"] = replicas("xgboost", 2, restartPolicy="Never")
    assert job_of(a_manifest("XGBoostJob", xgbReplicaSpecs=specs)).spec.restart.policy == "Never"


def test_the_pods_own_restart_policy_is_overruled_and_that_is_said() -> None:
    worker = replicas("jax", 2, restartPolicy="OnFailure")
    worker["template"]["spec"]["restartPolicy"] = "Always"
    found = converted(a_manifest("JAXJob", jaxReplicaSpecs={"Worker": worker}))
    assert found.notes == (
        "Worker: restartPolicy OnFailure of the replica is used, not the pod's Always",
    )


def test_an_mpijob_waits_without_sshd() -> None:
    worker = {"replicas": 2, "template": pod("mpi-worker", "/usr/sbin/sshd", "-De")}
    launcher = {"replicas": 1, "template": pod("mpi-launcher", "mpirun", "-n", "2", "pi")}
    specs = {"Launcher": launcher, "Worker": worker}
    document = a_manifest(
        "MPIJob", "kubeflow.org/v2beta1", slotsPerWorker=2, mpiReplicaSpecs=specs,
        runPolicy={"cleanPodPolicy": "Running"},
    )  # fmt: skip
    job = job_of(document)
    launcher_role, worker_role = job.spec.roles
    assert launcher_role.command[0] == "mpirun"
    assert worker_role.command == ()
    assert worker_role.env == {"SHOAL_SLOTS": "2"}
    assert (job.spec.restart.policy, job.spec.clean_up) == ("OnFailure", "Running")
    assert "sshd is not started" in " ".join(converted(document).notes)
    document["spec"]["mpiImplementation"] = "Intel"
    assert "Intel is not supported" in problems_of(document)
    one = a_manifest("MPIJob", cleanPodPolicy="All", mpiReplicaSpecs=specs)
    assert job_of(one).spec.clean_up == "All", "where the first version has it"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "there is no replica type"),
        ({"tfReplicaSpecs": {"Workers": replicas("tensorflow")}}, "did you mean Worker"),
        ({"tfReplicaSpecs": {"Worker": replicas("main")}}, "there is no container 'tensorflow'"),
        ({"tfReplicaSpecs": {"Worker": replicas("tensorflow", 0)}}, "whole number from 1; found 0"),
        ({"tfReplicaSpecs": {"Chief": replicas("tensorflow", 2)}}, "there is one Chief; found 2"),
        (
            {"tfReplicaSpecs": {"Worker": {"template": pod("tensorflow")}}},
            "the image's own program is not known here: write the command",
        ),
        (
            {
                "tfReplicaSpecs": {"Worker": replicas("tensorflow")},
                "runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"},
            },
            "kueue.x-k8s.io/multikueue runs this job",
        ),
        (
            {"tfReplicaSpecs": {"Worker": replicas("tensorflow", restartPolicy="Sometimes")}},
            "'Sometimes' is no restart policy",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(spec: dict[str, Any], said: str) -> None:
    assert said in problems_of(a_manifest("TFJob", **spec))


def test_kueues_label_names_the_queue() -> None:
    document = a_manifest("JAXJob", jaxReplicaSpecs={"Worker": replicas("jax")})
    document["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team-b"}
    assert job_of(document).spec.queue == "team-b"


def a_volcano_job(**spec: Any) -> dict[str, Any]:
    task = {"name": "worker", "replicas": 4, "template": pod("main", "python", "train.py")}
    task["template"]["spec"]["restartPolicy"] = "OnFailure"
    return a_manifest("Job", "batch.volcano.sh/v1alpha1", **{"tasks": [task], **spec})


def test_a_volcano_job() -> None:
    document = a_volcano_job(
        minAvailable=3, queue="team-a", maxRetry=5, plugins={"pytorch": [], "svc": []},
        policies=[
            {"event": "PodEvicted", "action": "RestartJob"},
            {"event": "PodFailed", "action": "RestartJob"},
            {"exitCode": 3, "action": "AbortJob"},
        ],
    )  # fmt: skip
    document["spec"]["tasks"][0]["policies"] = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    spec = job_of(document).spec
    assert [(role.name, role.replicas) for role in spec.roles] == [("worker", 4)]
    assert (spec.roles[0].min_replicas, spec.queue, spec.runtime) == (3, "team-a", "torchrun")
    assert (spec.restart.policy, spec.restart.limit, spec.restart.scope) == ("OnFailure", 5, "Gang")
    assert [(rule.exit_codes, rule.action) for rule in spec.restart.rules] == [((3,), "Fail")]
    assert spec.success.role == "worker"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"minAvailable": 5}, "spec.minAvailable: is 5, and the tasks have 4 replicas in all"),
        ({"policies": [{"event": "PodPending", "action": "RestartJob"}]}, "RestartJob on PodPending"),
        ({"policies": [{"exitCode": 0, "action": "RestartJob"}]}, "on exit code 0 has no counterpart"),
        ({"tasks": []}, "a job has at least one task"),
        ({"networkTopology": {"mode": "hard"}}, "spec.networkTopology: is not supported"),
        (
            {"tasks": [{"name": "a", "template": pod("main", "sh", "-c", "cat /etc/volcano/a.host")}]},
            "of Volcano's plugins, which Shoal does not give",
        ),
    ],
)
def test_what_a_volcano_job_may_not_say(spec: dict[str, Any], said: str) -> None:
    assert said in problems_of(a_volcano_job(**spec))


def test_a_job_of_kubernetes() -> None:
    spec = {
        "completions": 6, "parallelism": 2, "backoffLimit": 1, "activeDeadlineSeconds": 60,
        "ttlSecondsAfterFinished": 30, "template": pod("main", "true"),
    }  # fmt: skip
    found = job_of(a_manifest("Job", "batch/v1", **spec)).spec
    assert found.array is not None
    assert (found.array.indices, found.array.parallelism) == ("0-5", 2)
    assert (found.restart.limit, found.limits.wall_time, found.ttl_after_finished) == (1, 60, 30)


def test_torchrun_starts_the_processes_that_are_asked_for() -> None:
    specs = {"Master": replicas("pytorch", 1), "Worker": replicas("pytorch", 3)}
    job = job_of(a_manifest("PyTorchJob", pytorchReplicaSpecs=specs, nprocPerNode="2"))
    for role in job.spec.roles:
        assert role.env == {"PET_NPROC_PER_NODE": "2", "WORLD_SIZE": "8"}
    job = job_of(a_manifest("PyTorchJob", pytorchReplicaSpecs=specs, nprocPerNode="auto"))
    assert not job.spec.roles[0].env
    said = problems_of(a_manifest("PyTorchJob", pytorchReplicaSpecs=specs, nprocPerNode="two"))
    assert "wants auto, gpu, cpu or a number; found 'two'" in said


def a_job_set(**spec: Any) -> dict[str, Any]:
    workers = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": pod("a", "train")}
    leader = {"backoffLimit": 0, "template": pod("b", "serve")}
    jobs = [
        {"name": "workers", "replicas": 3, "template": {"spec": workers}},
        {"name": "leader", "template": {"spec": leader}},
    ]
    return a_manifest("JobSet", "jobset.x-k8s.io/v1alpha2", **{"replicatedJobs": jobs, **spec})


def test_a_job_set() -> None:
    document = a_job_set(
        failurePolicy={"maxRestarts": 3}, successPolicy={"targetReplicatedJobs": ["workers"]},
        suspend=True, ttlSecondsAfterFinished=60,
    )  # fmt: skip
    spec = job_of(document).spec
    assert [(role.name, role.replicas) for role in spec.roles] == [("workers", 6), ("leader", 1)]
    assert (spec.restart.policy, spec.restart.limit, spec.restart.scope) == ("OnFailure", 3, "Gang")
    assert (spec.success.role, spec.suspend, spec.ttl_after_finished) == ("workers", True, 60)
    alone = job_of(a_job_set()).spec
    assert (alone.restart.limit, alone.restart.scope, alone.success.role) == (0, "Task", "")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"replicatedJobs": []}, "a set has at least one job"),
        ({"successPolicy": {"targetReplicatedJobs": ["worker"]}}, "there is no job 'worker'"),
        ({"successPolicy": {"operator": "Any"}}, "names one job, or all with the operator All"),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, "kueue.x-k8s.io/multikueue runs this set"),
        ({"startupPolicy": {"startupPolicyOrder": "InOrder"}}, "one after the other"),
        ({"failurePolicy": {"rules": [{"action": "FailJobSet"}]}}, "rules by reason"),
    ],
)
def test_what_a_job_set_may_not_say(spec: dict[str, Any], said: str) -> None:
    assert said in problems_of(a_job_set(**spec))


def a_train_job(**spec: Any) -> dict[str, Any]:
    trainer = {"numNodes": 3, "command": ["torchrun", "train.py"], "image": "example/train:1"}
    whole = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer, **spec}
    return a_manifest("TrainJob", "trainer.kubeflow.org/v1alpha1", **whole)


def test_a_train_job() -> None:
    document = a_train_job(activeDeadlineSeconds=60)
    document["spec"]["trainer"] |= {
        "env": [{"name": "A", "value": "b"}], "numProcPerNode": 2,
        "resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}},
    }  # fmt: skip
    inner = {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}, "volumes": []}}}}
    patch = {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": inner}]}}}
    document["spec"]["runtimePatches"] = [{"manager": "me", "trainingRuntimeSpec": patch}]
    found = job_of(document).spec
    [role] = found.roles
    assert (role.name, role.replicas, found.runtime) == ("node", 3, "torchrun")
    assert role.env == {"A": "b", "PET_NPROC_PER_NODE": "2"}
    assert (role.resources.gpu, role.node_selector, found.limits.wall_time) == (1, {"a": "b"}, 60)
    assert "volumes of the runtime's patch is left out" in converted(document).notes
    said = problems_of(a_train_job(runtimeRef={"name": "torch-distribute"}))
    assert "did you mean torch-distributed" in said
    reserved = a_train_job()
    reserved["spec"]["trainer"]["env"] = [{"name": "PET_NNODES", "value": "9"}]
    assert "PET_NNODES is set by the runtime" in problems_of(reserved)


def test_a_trial_may_be_any_of_these_jobs() -> None:
    worker = replicas("pytorch", 2)
    worker["template"]["spec"]["containers"][0]["args"] = ["--lr=${trialParameters.lr}"]
    trial = {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "spec": {"pytorchReplicaSpecs": {"Worker": worker}},
    }  # fmt: skip
    parameter = {
        "name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0.1", "max": "0.2"},
    }  # fmt: skip
    document = a_manifest(
        "Experiment", "kubeflow.org/v1beta1", parameters=[parameter],
        objective={"type": "maximize", "objectiveMetricName": "accuracy"},
        algorithm={"algorithmName": "random"}, maxTrialCount=2,
        trialTemplate={
            "primaryContainerName": "pytorch", "trialSpec": trial,
            "trialParameters": [{"name": "lr", "reference": "lr"}],
        },
    )  # fmt: skip
    found = admit(converted(document).document)
    assert isinstance(found, Experiment)
    made = job_document(found, "digits-0", 0, {"lr": 0.15})
    assert made["spec"]["runtime"] == "torchrun"
    assert made["spec"]["roles"][0]["args"] == ["--lr=0.15"]
    del worker["template"]["spec"]["containers"][0]["command"]
    said = problems_of(document)
    assert "spec.trialTemplate.trialSpec.spec.pytorchReplicaSpecs.Worker.command" in said


@pytest.mark.parametrize("value", [None, [], "x", {"a": 1}, 3, [{"a": []}]])
@pytest.mark.parametrize("kind", [*KINDS, "Volcano", "JobSet", "TrainJob", "Job"])
def test_odd_documents_raise_invalid_or_convert(kind: str, value: Any) -> None:
    if kind in KINDS:
        facts = KINDS[kind]
        whole = a_manifest(
            kind, "kubeflow.org/v1", runPolicy={}, **{facts.replicas: {"Worker": replicas("m")}}
        )
    else:
        others = {"Volcano": a_volcano_job(), "JobSet": a_job_set(), "TrainJob": a_train_job()}
        whole = others.get(kind) or a_manifest("Job", "batch/v1", template=pod("m"))
    for path in _paths(whole):
        odd = copy.deepcopy(whole)
        _put(odd, path, value)
        with contextlib.suppress(Invalid):  # the one error that a manifest may cause
            assert isinstance(converted(odd), Converted)


def _paths(value: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in items:
        if key not in ("apiVersion", "kind"):
            found.append((key,))
            if isinstance(part, dict | list):
                found += [(key, *rest) for rest in _paths(part)]
    return found


def _put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


@pytest.mark.skipif(not MANIFESTS.is_dir(), reason=f"the published manifests are not in {MANIFESTS}")
def test_the_published_manifests_convert_or_say_why_not() -> None:
    found: dict[bool, list[str]] = {True: [], False: []}
    for path in sorted(MANIFESTS.glob("*/*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if not is_foreign(document) or document["kind"] in ("Experiment", *UNSUPPORTED):
                continue
            try:
                job_of(document)
            except Invalid as error:
                problems = "\n".join(map(str, error.problems))
                assert any(each in problems for each in CANNOT_RUN_HERE), (path.name, problems)
                found[False].append(path.stem)
            else:
                found[True].append(path.stem)
    assert len(found[True]) >= 16, found
