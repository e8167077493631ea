"""The contracts that apply to a task: `plain` always, and over it the one of its job's runtime.

**PyTorch**: the environment that torchrun sets for a worker process, and the one that it reads. A
script that calls `init_process_group` with `env://` is one rank. A command that is itself `torchrun`
takes its flags from the `PET_*` variables, and sets those of its own children. Each task sees only its
own devices, so each is a host of one process: `LOCAL_RANK` is 0 and the group's rank is the rank.

**TensorFlow**: `TF_CONFIG`, as a TFJob's tasks get it. Roles are named as TensorFlow names them: chief
or master, worker, ps, evaluator. A job with workers that may come and go one by one (an elastic role,
not restarted as a gang) gets the sparse form: no task needs to know the workers, each knows itself and
the parameter servers.

**JAX**: where the coordinator is, how many processes there are, and which one this is.
`jax.distributed.initialize()` finds `JAX_COORDINATOR_ADDRESS` by itself; the number of processes and
this one's id it takes from no variable (jax 0.10), so a script passes `JAX_NUM_PROCESSES` and
`JAX_PROCESS_ID` on. The names without the prefix are those of JAXJob's first version.

**XGBoost and LightGBM**: the tracker's address, and the workers'. Both spellings are set: that of
XGBoostJob (`MASTER_*`, `RANK`, `WORKER_*`) and that of dmlc (`DMLC_*`). Nothing runs a tracker for the
job: rank 0 starts it at the address that all are given.

**Paddle**: what `paddle.distributed.launch` reads, and what a script that it does not start reads.
With a role called master the job is one of parameter servers: the masters serve, the rest train.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.objects import codec
from shoal.objects.elastic import is_coordinator
from shoal.objects.job import Job
from shoal.objects.task import RENDEZVOUS_FOLDER, Endpoint, TaskBootstrap, TaskSpec
from shoal.rendezvous import mpi
from shoal.rendezvous.group import RENDEZVOUS_PORT, Group, address

LARGEST_VARIABLE = 96 * 1024
"""Bytes of `SHOAL_TASKS`; the kernel takes 128 KiB for a variable and its name."""

TASKS_FILE = "tasks.json"
Contract = Callable[[Group, Endpoint], TaskBootstrap]


def _plain(group: Group, spec: TaskSpec) -> TaskBootstrap:
    """The plain contract of one task.

    `SHOAL_TASKS` is `{"role": [{"index": 0, "host": ..., "ports": {...}, "node": ...}]}` in the order
    of ranks, then those that are known and have none. One that is too large for a variable is in the
    file that `SHOAL_TASKS_FILE` names instead.
    """
    member = group.member(spec.role, spec.index)
    env = {
        "SHOAL_NAMESPACE": spec.namespace,
        "SHOAL_JOB": spec.job,
        "SHOAL_JOB_UID": spec.job_uid,
        "SHOAL_RUNTIME": group.job.spec.runtime,
        "SHOAL_TASK": spec.name,
        "SHOAL_ROLE": spec.role,
        "SHOAL_INDEX": str(spec.index),
        "SHOAL_ATTEMPT": str(spec.attempt),
        "SHOAL_INCARNATION": str(spec.incarnation),
        "SHOAL_RANK": str(group.rank(member)),
        "SHOAL_WORLD_SIZE": str(group.size),
        "SHOAL_HOST": member.host,
        "PYTHONUNBUFFERED": "1",
        **{_variable(name): str(port) for name, port in sorted(member.ports.items())},
    }
    if group.job.spec.array is not None:
        env["JOB_COMPLETION_INDEX"] = str(spec.index)
    tasks = _tasks(group)
    if len(tasks) <= LARGEST_VARIABLE:
        return TaskBootstrap(env={**env, "SHOAL_TASKS": tasks})
    env["SHOAL_TASKS_FILE"] = f"{RENDEZVOUS_FOLDER}/{TASKS_FILE}"
    return TaskBootstrap(env=env, files={TASKS_FILE: tasks})


def _variable(port: str) -> str:
    return f"SHOAL_PORT_{port.upper().replace('-', '_')}"


def _tasks(group: Group) -> str:
    described = {
        role: [_described(member) for member in members] for role, members in group.by_role.items()
    }
    for other in group.others:
        described.setdefault(other.role, []).append(_described(other))
    return codec.encode(described).decode()


def _described(member: Endpoint) -> dict[str, Any]:
    return {
        "index": member.index, "host": member.host, "ports": member.ports, "node": member.node,
    }  # fmt: skip


def _torchrun(group: Group, member: Endpoint) -> TaskBootstrap:
    """torchrun's contract for one task."""
    rank, size = str(group.rank(member)), str(group.size)
    peers = group.by_role[member.role]
    master, port = group.first.host, str(group.first.ports[RENDEZVOUS_PORT])
    role = group.role(member.role)
    env = {
        "MASTER_ADDR": master,
        "MASTER_PORT": port,
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": rank,
        "GROUP_WORLD_SIZE": size,
        "ROLE_NAME": member.role,
        "ROLE_RANK": str(peers.index(member)),
        "ROLE_WORLD_SIZE": str(len(peers)),
        "TORCHELASTIC_RUN_ID": group.run_id,
        "TORCHELASTIC_RESTART_COUNT": str(max(0, group.attempt - 1)),
        "TORCHELASTIC_MAX_RESTARTS": str(group.job.spec.restart.limit),
        # there is no agent that keeps the store: rank 0 does
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "OMP_NUM_THREADS": str(max(1, int(role.resources.cpu) // 1000)),
        "PET_NNODES": size,
        "PET_NODE_RANK": rank,
        "PET_NPROC_PER_NODE": str(max(1, role.resources.gpu)),
        "PET_MASTER_ADDR": master,
        "PET_MASTER_PORT": port,
        "PET_RDZV_ID": group.run_id,
        # the gang starts again as one, with a new attempt
        "PET_MAX_RESTARTS": "0",
    }
    if group.loopback:
        env |= {"GLOO_SOCKET_IFNAME": group.loopback, "NCCL_SOCKET_IFNAME": group.loopback}
    return TaskBootstrap(env=env)


def _tensorflow(group: Group, member: Endpoint) -> TaskBootstrap:
    """TensorFlow's contract for one task: nothing for a job that has one replica in all."""
    if sum(role.replicas for role in group.job.spec.roles) == 1:
        return TaskBootstrap()
    config = _sparse(group, member) if _workers_come_and_go(group) else _full(group, member)
    return TaskBootstrap(env={"TF_CONFIG": codec.encode(config).decode()})


def _full(group: Group, member: Endpoint) -> dict[str, Any]:
    cluster = {role: [address(each) for each in members] for role, members in group.by_role.items()}
    return {
        "cluster": dict(sorted(cluster.items())),
        "task": {"type": member.role, "index": group.by_role[member.role].index(member)},
        "environment": "cloud",
    }


def _sparse(group: Group, member: Endpoint) -> dict[str, Any]:
    servers = [address(each) for each in group.by_role.get("ps", ())]
    worker: dict[str, str] = {}
    if member.role == "worker":
        worker = {str(member.index): address(member)}
    elif member.role == "ps":
        servers = [address(member)]
    return {
        "cluster": {"worker": worker, "ps": servers},
        "task": {"type": member.role, "index": member.index},
    }


def _workers_come_and_go(group: Group) -> bool:
    spec = group.job.spec
    elastic = any(role.name == "worker" and role.min_replicas is not None for role in spec.roles)
    return elastic and spec.restart.scope != "Gang"


def _jax(group: Group, member: Endpoint) -> TaskBootstrap:
    """JAX's contract for one task."""
    size, rank, first = str(group.size), str(group.rank(member)), group.first
    env = {
        "JAX_COORDINATOR_ADDRESS": address(first),
        "JAX_NUM_PROCESSES": size,
        "JAX_PROCESS_ID": rank,
        "COORDINATOR_ADDRESS": first.host,
        "COORDINATOR_PORT": str(first.ports[RENDEZVOUS_PORT]),
        "NUM_PROCESSES": size,
        "PROCESS_ID": rank,
    }
    if group.loopback:
        # else it would listen on all of the machine's interfaces
        env["JAX_COORDINATOR_BIND_ADDRESS"] = address(first)
    return TaskBootstrap(env=env)


def _xgboost(group: Group, member: Endpoint) -> TaskBootstrap:
    """XGBoost's contract for one task."""
    size, rank, first = str(group.size), str(group.rank(member)), group.first
    port = str(first.ports[RENDEZVOUS_PORT])
    env = {
        "MASTER_ADDR": first.host,
        "MASTER_PORT": port,
        "WORLD_SIZE": size,
        "RANK": rank,
        "DMLC_TRACKER_URI": first.host,
        "DMLC_TRACKER_PORT": port,
        "DMLC_TASK_ID": rank,
        "DMLC_NUM_WORKER": size,
        **_workers(group, member),
    }
    return TaskBootstrap(env=env)


def _workers(group: Group, member: Endpoint) -> dict[str, str]:
    """The contract has one port for all workers. Where they share an address theirs differ, and each
    is given its own; `SHOAL_TASKS` has them all."""
    if group.size == 1:
        return {}
    workers = [each for each in group.members if each.role != "master"]
    ports = {each.ports[RENDEZVOUS_PORT] for each in workers}
    port = ports.pop() if len(ports) == 1 else member.ports[RENDEZVOUS_PORT]
    return {"WORKER_PORT": str(port), "WORKER_ADDRS": ",".join(each.host for each in workers)}


def _paddle(group: Group, member: Endpoint) -> TaskBootstrap:
    """Paddle's contract for one task."""
    env = {
        "PADDLE_JOB_ID": group.run_id,
        "PADDLE_NNODES": str(group.size),
        "PADDLE_MASTER": address(group.first),
    }
    if "master" in group.by_role:
        env["PADDLE_SERVER_NUM" if member.role == "master" else "PADDLE_TRAINER_NUM"] = "1"
        return TaskBootstrap(env=env)
    env |= {
        "PADDLE_TRAINER_ID": str(group.rank(member)),
        "PADDLE_TRAINERS_NUM": str(group.size),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(address(each) for each in group.members),
        "PADDLE_CURRENT_ENDPOINT": address(member),
    }
    return TaskBootstrap(env=env)


_CONTRACTS: dict[str, Contract] = {
    "torchrun": _torchrun,
    "tensorflow": _tensorflow,
    "mpi": mpi.render,
    "jax": _jax,
    "xgboost": _xgboost,
    "paddle": _paddle,
    # the elastic runtime joins its view by itself; what it starts from is torchrun's environment
    "elastic": _torchrun,
}


def render(
    job: Job, attempt: int, specs: tuple[TaskSpec, ...], endpoints: tuple[Endpoint, ...]
) -> dict[str, TaskBootstrap]:
    """The bootstrap of each of `specs`, which are about to start, by task name.

    `endpoints` are those of `specs` and of every other member that runs: of one index given twice
    the last counts. Each endpoint has a port called `rendezvous`.
    """
    if job.spec.array is not None:  # indices have no peers
        own = {(each.role, each.index): each for each in endpoints}
        return {
            spec.name: _plain(Group(job, attempt, (own[spec.role, spec.index],)), spec) for spec in specs
        }
    own = [each for each in endpoints if not is_coordinator(job.spec, each.role)]
    platforms = [each for each in endpoints if is_coordinator(job.spec, each.role)]
    group = Group(job, attempt, own, platforms)
    contract = _CONTRACTS.get(job.spec.runtime)
    rendered: dict[str, TaskBootstrap] = {}
    for spec in specs:
        if is_coordinator(job.spec, spec.role):  # none of the others' ranks is its
            rendered[spec.name] = _plain(Group(job, attempt, platforms, own), spec)
            continue
        common = _plain(group, spec)
        if contract is None:
            rendered[spec.name] = common
            continue
        special = contract(group, group.member(spec.role, spec.index))
        rendered[spec.name] = TaskBootstrap(
            env={**common.env, **special.env},
            files={**common.files, **special.files},
            command=special.command,
        )
    return rendered
