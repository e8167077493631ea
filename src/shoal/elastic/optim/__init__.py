"""Optimizers and learning rates for batches that grow, and training that synchronises every few steps.

The formulas and their sources are in `docs/design/elastic-batch.md`. Nothing here sends anything: where
sums over ranks are needed, they are handed in, or the call that makes them is.

- `lars`     an optimizer that scales each layer's step
- `policy`   the global batch and the learning rate's factor at a world size
- `local`    local SGD and DiLoCo, over an allreduce that is handed in
"""

from __future__ import annotations

from shoal.elastic.optim.lars import LARS
from shoal.elastic.optim.policy import Scale

__all__ = ["LARS", "Scale"]
