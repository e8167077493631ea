"""Optimizers and learning rates for batches that grow, and training that synchronises every few steps.

The formulas and their sources are in `docs/design/elastic-batch.md`. Nothing here sends anything: where
sums over ranks are needed, they are handed in, or the call that makes them is.

- `lars`             an optimizer that scales each layer's step; `layers`, `layerwise`: its parts
- `grouping`         parameters that layer-wise scaling and weight decay leave alone
- `rules`            by which factor a learning rate grows with the batch, and how it warms up
- `policy`           the global batch and the factor at a world size: `Fixed`, `Scale`
- `rates`            the factor put around one `optimizer.step()`
- `outer`            local SGD and DiLoCo: the outer step
- `local`            the two together, over an allreduce that is handed in
"""

from __future__ import annotations

from shoal.elastic.optim.lars import LARS
from shoal.elastic.optim.policy import Fixed, Scale

__all__ = ["LARS", "Fixed", "Scale"]
