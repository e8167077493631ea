"""PyTorch: the environment that torchrun sets for a worker process, and the one that it reads.

A script that calls `init_process_group` with `env://` is one rank. A command that is itself `torchrun`
takes its flags from the `PET_*` variables, and sets those of its own children. Each task sees only its
own devices, so each is a host of one process: `LOCAL_RANK` is 0 and the group's rank is the rank.
"""

from __future__ import annotations

from shoal.objects.task import Endpoint, TaskBootstrap
from shoal.rendezvous.group import RENDEZVOUS_PORT, Group

__all__ = ["render"]


def render(group: Group, member: Endpoint) -> TaskBootstrap:
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
