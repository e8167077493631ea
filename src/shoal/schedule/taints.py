"""Which taints of a node do not keep a task away."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.objects.job import Toleration
from shoal.objects.node import Taint

__all__ = ["tolerates"]


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Whether one of the tolerations matches the taint."""
    return any(
        (not each.key or each.key == taint.key)
        and (each.value is None or each.value == taint.value)
        and (each.effect is None or each.effect == taint.effect)
        for each in tolerations
    )
