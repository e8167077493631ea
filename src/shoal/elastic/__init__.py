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
- `ledger/`                which samples a step consists of, and who is handed which
- `joining/`               state from a peer while training goes on
- `checkpoint/`            committed steps, written behind the training's back
- `codecs/`, `optim/`      smaller gradients; learning rates and optimizers for larger batches
- `api`                    what a script sees
"""

from __future__ import annotations

__all__: list[str] = []
