"""The script's choices for communication and batch size; fixed once the training has begun."""

from __future__ import annotations

from shoal.elastic.codecs.catalogue import Plan
from shoal.elastic.errors import ElasticError
from shoal.elastic.local import LocalPlan
from shoal.elastic.optim.policy import Scale, Scaling

__all__ = ["CommConfig"]


class CommConfig:
    """Of one process; the same on every worker of a job. `settled`: training has begun, nothing can be
    chosen any more.

    `plan`: how gradients are exchanged; `local`: with `mode="local"`, what is exchanged in their stead;
    `scaling`: how batch and learning rate follow the number of workers.
    """

    def __init__(self) -> None:
        self.settled = False
        self.plan = Plan()
        self.local: LocalPlan | None = None
        self.scaling: Scaling | None = None

    def travel(self, plan: Plan | LocalPlan) -> None:
        """Choose how gradients, or local steps, are exchanged.

        Raises:
            ElasticError: the training has begun.
        """
        if self.settled:
            raise ElasticError("job.wrap() with codec=, bucket= or mode= comes before job.shards()")
        if isinstance(plan, LocalPlan):
            self.local = plan
        else:
            self.plan = plan

    def scale(self, policy: Scale | None, samples: int) -> Scaling | None:
        """Apply `policy` to batches of `samples`; None: the batch is kept. Returns the new scaling, or
        None if there is none or it was set before.

        Raises:
            ElasticError: another policy was set before.
        """
        if self.settled:
            if policy != (self.scaling.policy if self.scaling is not None else None):
                raise ElasticError("job.shards(scale=...) must be the same in all loops of a script")
            return None
        if policy is None:
            return None
        self.scaling = Scaling(policy, samples)
        return self.scaling

    @property
    def words(self) -> tuple[str, str]:
        """The exchange and the batch policy in words: equal for equal configurations."""
        batch = str(self.scaling.policy) if self.scaling is not None else "kept"
        return str(self.local or self.plan), batch
