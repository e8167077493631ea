"""Optimizers and learning rates for batches that grow, and training that synchronises every few steps.

The formulas and their sources are in `docs/design/elastic-batch.md`. Nothing here sends anything: where
sums over ranks are needed, they are handed in, or the call that makes them is.

- `lars`, `lamb`     optimizers that scale each layer's step; `layers` is what both need of tensors
- `grouping`         parameters that layer-wise scaling and weight decay leave alone
- `rules`            by which factor a learning rate grows with the batch, and how it warms up
- `adascale`         the factor measured from how much the ranks' gradients differ
- `policy`           the global batch and the factor at a world size: `Fixed`, `Scale`
- `rates`            the factor put around one `optimizer.step()`
- `outer`, `blocks`  local SGD and DiLoCo: the outer step; which block of parameters is exchanged when
- `local`            the two together, over an allreduce that is handed in
"""

from __future__ import annotations

from shoal.elastic.optim.lamb import LAMB
from shoal.elastic.optim.lars import LARS
from shoal.elastic.optim.policy import Fixed, Scale

__all__ = ["LAMB", "LARS", "Fixed", "Scale"]
