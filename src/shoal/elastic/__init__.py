"""Elastic training inside a job: lose a worker and keep the step, gain one and keep the pace.

    from shoal import elastic

    job = elastic.init()
    model, optimizer = job.wrap(model, optimizer)
    for batch in job.shards(dataset, batch_size=64, epochs=3, seed=0):
        loss_fn(model, batch).backward()
        optimizer.step()

It ships into users' processes: it imports nothing of Shoal but `faults` and `clock`, and torch is its
only heavy dependency. `docs/design/elastic.md` is the protocol.

- `view`, `wire`           what members agree on, and how messages are framed
- `coordinator/`           the process that alone publishes views
- `link`                   the worker's connection to it
- `detect/`                the sidecar that sees a worker stop or go; SWIM for large jobs
- `allreduce/`             gradient buckets over groups that are swapped under them; rolling forward
- `ledger/`                the samples of a step, and how they are dealt to workers
- `joining/`               state from a peer while training goes on
- `checkpoint/`            committed steps, written behind the training's back
- `codecs/`, `optim/`      smaller gradients; learning rates and optimizers for larger batches
- `api`                    what a script sees
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.elastic.api import Job, init
    from shoal.elastic.errors import ElasticError, Stopped
    from shoal.elastic.optim import LARS, Scale
    from shoal.elastic.optim.local import AVERAGE, Outer

__all__ = ["AVERAGE", "LARS", "ElasticError", "Job", "Outer", "Scale", "Stopped", "init"]

_HOMES = {
    "AVERAGE": "optim.local",
    "LARS": "optim",
    "ElasticError": "errors",
    "Job": "api",
    "Outer": "optim.local",
    "Scale": "optim",
    "Stopped": "errors",
    "init": "api",
}


def __getattr__(name: str) -> Any:
    """The coordinator and the sidecar are in this package too, and must not wait for torch."""
    if name == "LAMB":
        raise AttributeError("shoal.elastic has no LAMB any more: use LARS, or an optimizer of torch")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
