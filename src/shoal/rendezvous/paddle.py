"""Paddle: what `paddle.distributed.launch` reads, and what a script that it does not start reads.

With a role called master the job is one of parameter servers: the masters serve, the rest train.
"""

from __future__ import annotations

from shoal.objects.task import Endpoint, TaskBootstrap
from shoal.rendezvous.group import Group, address

__all__ = ["render"]


def render(group: Group, member: Endpoint) -> TaskBootstrap:
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
