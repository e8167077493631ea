"""XGBoost and LightGBM: the tracker's place, and the workers'.

Both spellings are set: that of XGBoostJob (`MASTER_*`, `RANK`, `WORKER_*`) and that of dmlc (`DMLC_*`).
Nothing runs a tracker for the job: rank 0 starts it at the address that all are given.
"""

from __future__ import annotations

from shoal.objects.task import Endpoint, TaskBootstrap
from shoal.rendezvous.group import RENDEZVOUS_PORT, Group

__all__ = ["render"]


def render(group: Group, member: Endpoint) -> TaskBootstrap:
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
