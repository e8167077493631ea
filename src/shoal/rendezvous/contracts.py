"""The contracts that apply to a task: `plain` always, and over it the one of its job's runtime."""

from __future__ import annotations

from collections.abc import Callable

from shoal.objects.elastic import is_coordinator
from shoal.objects.job import Job
from shoal.objects.task import Endpoint, TaskBootstrap, TaskSpec
from shoal.rendezvous import jax, mpi, paddle, plain, tensorflow, torchrun, xgboost
from shoal.rendezvous.group import Group

__all__ = ["render"]

Contract = Callable[[Group, Endpoint], TaskBootstrap]

_CONTRACTS: dict[str, Contract] = {
    "torchrun": torchrun.render,
    "tensorflow": tensorflow.render,
    "mpi": mpi.render,
    "jax": jax.render,
    "xgboost": xgboost.render,
    "paddle": paddle.render,
    # the elastic runtime joins its view by itself; what it starts from is torchrun's environment
    "elastic": torchrun.render,
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
            spec.name: plain.render(Group(job, attempt, (own[spec.role, spec.index],)), spec)
            for spec in specs
        }
    own = [each for each in endpoints if not is_coordinator(job.spec, each.role)]
    platforms = [each for each in endpoints if is_coordinator(job.spec, each.role)]
    group = Group(job, attempt, own, platforms)
    contract = _CONTRACTS.get(job.spec.runtime)
    rendered: dict[str, TaskBootstrap] = {}
    for spec in specs:
        if is_coordinator(job.spec, spec.role):  # none of the others' ranks is its
            rendered[spec.name] = plain.render(Group(job, attempt, platforms, own), spec)
            continue
        common = plain.render(group, spec)
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
