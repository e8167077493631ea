"""JAX: where the coordinator is, how many processes there are, and which one this is.

`jax.distributed.initialize()` finds `JAX_COORDINATOR_ADDRESS` by itself; the number of processes and
this one's id it takes from no variable (jax 0.10), so a script passes them on:

    jax.distributed.initialize(
        num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
        process_id=int(os.environ["JAX_PROCESS_ID"]),
    )

The names without the prefix are those of JAXJob's first version.
"""

from __future__ import annotations

from shoal.objects.task import Endpoint, TaskBootstrap
from shoal.rendezvous.group import RENDEZVOUS_PORT, Group, address

__all__ = ["render"]


def render(group: Group, member: Endpoint) -> TaskBootstrap:
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
