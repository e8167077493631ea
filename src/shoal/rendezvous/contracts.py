"""Which contracts a task is told by: `plain` always, and over it the one of its job's runtime."""

from __future__ import annotations

from collections.abc import Callable

from shoal.objects.elastic import is_coordinator
from shoal.objects.job import Job
from shoal.objects.task import Endpoint, TaskSpec, Told
from shoal.rendezvous import jax, mpi, paddle, plain, tensorflow, torchrun, xgboost
from shoal.rendezvous.group import Group

__all__ = ["tell"]

Contract = Callable[[Group, Endpoint], Told]

_CONTRACTS: dict[str, Contract] = {
    "torchrun": torchrun.tell,
    "tensorflow": tensorflow.tell,
    "mpi": mpi.tell,
    "jax": jax.tell,
    "xgboost": xgboost.tell,
    "paddle": paddle.tell,
    # the elastic runtime joins its view by itself; what it starts from is torchrun's environment
    "elastic": torchrun.tell,
}


def tell(
    job: Job, attempt: int, specs: tuple[TaskSpec, ...], endpoints: tuple[Endpoint, ...]
) -> dict[str, Told]:
    """What each of `specs`, which are about to start, is told, by task name.

    `endpoints` are those of `specs` and of every other member that runs: of one index given twice
    the last counts. Each endpoint has a port called `rendezvous`.
    """
    if job.spec.array is not None:  # indices have no peers
        own = {(each.role, each.index): each for each in endpoints}
        return {
            spec.name: plain.tell(Group(job, attempt, (own[spec.role, spec.index],)), spec)
            for spec in specs
        }
    own = [each for each in endpoints if not is_coordinator(job.spec, each.role)]
    platforms = [each for each in endpoints if is_coordinator(job.spec, each.role)]
    group = Group(job, attempt, own, platforms)
    contract = _CONTRACTS.get(job.spec.runtime)
    told: dict[str, Told] = {}
    for spec in specs:
        if is_coordinator(job.spec, spec.role):  # none of the others' ranks is its
            told[spec.name] = plain.tell(Group(job, attempt, platforms, own), spec)
            continue
        common = plain.tell(group, spec)
        if contract is None:
            told[spec.name] = common
            continue
        special = contract(group, group.member(spec.role, spec.index))
        told[spec.name] = Told(
            env={**common.env, **special.env},
            files={**common.files, **special.files},
            command=special.command,
        )
    return told
