"""How what workers learn goes from one to another, and what becomes of the batch: a script's choices."""

from __future__ import annotations

from shoal.elastic.codecs.tuner import Plan
from shoal.elastic.errors import ElasticError
from shoal.elastic.local import LocalPlan
from shoal.elastic.optim.policy import Scale, Scaling

__all__ = ["Ways"]


class Ways:
    """Of one process; the same on every worker of a job. `settled`: training has begun, nothing can be
    chosen any more.

    `plan`: how gradients travel; `local`: that they do not, and what does; `enough`: of how many workers
    a step is made (None: of all); `scaling`: how batch and learning rate follow the number of workers.
    """

    def __init__(self) -> None:
        self.settled = False
        self.plan = Plan()
        self.local: LocalPlan | None = None
        self.enough: int | None = None
        self.scaling: Scaling | None = None

    def travel(self, plan: Plan | LocalPlan) -> None:
        """How gradients travel, or what was learned.

        Raises:
            ElasticError: the training has begun, or this does not go with `wait_for`.
        """
        self._check_open()
        if isinstance(plan, LocalPlan):
            self.local = plan
        else:
            self.plan = plan
        self._check_together()

    def wait_for(self, enough: int) -> None:
        """A step goes on with the gradients of so many ranks.

        Raises:
            ElasticError: the training has begun, or gradients do not travel as they are.
        """
        self._check_open()
        self.enough = enough
        self._check_together()

    def scale(self, policy: Scale | None, samples: int) -> Scaling | None:
        """`policy` is what becomes of batches of `samples`; None: they are kept. What follows it, if
        that is new.

        Raises:
            ElasticError: it cannot be had here, or it was another before.
        """
        if self.settled:
            if policy != (self.scaling.policy if self.scaling is not None else None):
                raise ElasticError("job.shards(scale=...) must be the same in all loops of a script")
            return None
        if policy is None:
            return None
        if self.local is not None and policy.rule == "adascale":
            raise ElasticError("AdaScale measures gradients: with mode='local' none are exchanged")
        self.scaling = Scaling(policy, samples)
        return self.scaling

    @property
    def words(self) -> tuple[str, str]:
        """How what is learned travels, and what becomes of the batch: equal for equal ways."""
        whose = f", of the first {self.enough} workers" if self.enough is not None else ""
        batch = str(self.scaling.policy) if self.scaling is not None else "kept"
        return str(self.local or self.plan) + whose, batch

    def _check_open(self) -> None:
        if self.settled:
            raise ElasticError("job.wrap() with codec=, min_contrib= or mode= comes before job.shards()")

    def _check_together(self) -> None:
        plain = self.local is None and self.plan.codecs == ("none",) and not self.plan.measures
        if self.enough is not None and not plain:
            raise ElasticError(
                "min_contrib= goes with gradients as they are: not with mode='local', a codec, or 'auto'"
            )
