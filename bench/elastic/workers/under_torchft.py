"""torchft: one replica group per process, its DDP and optimizer wrappers, a lighthouse elsewhere."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from torch.distributed import TCPStore
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

from bench.elastic.models import loss_of, take
from bench.elastic.workers.loop import Loop


def main() -> None:
    """Train for ever. `TORCHFT_LIGHTHOUSE` is where the lighthouse is."""
    loop = Loop()

    def save() -> dict[str, Any]:
        return {"model": loop.model.state_dict(), "optimizer": loop.optimizer.state_dict()}

    def load(state: dict[str, Any]) -> None:
        loop.model.load_state_dict(state["model"])
        loop.optimizer.load_state_dict(state["optimizer"])

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    timeout = timedelta(seconds=5)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timeout),
        load_state_dict=load,
        state_dict=save,
        min_replica_size=1,
        use_async_quorum=True,
        timeout=timeout,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        hostname="127.0.0.1",
        replica_id=os.environ["BENCH_NAME"],
    )
    model = DistributedDataParallel(manager, loop.model)
    optimizer = Optimizer(manager, loop.optimizer)
    loop.recorder.event("joined")
    rank, world = 0, 1
    while True:
        before = manager.current_step()
        loop.begin(before + 1)
        optimizer.zero_grad()
        # the part is that of the step before: to ask for this step's would wait for its quorum, which
        # otherwise overlaps the forward pass
        part = take(loop.samples, loop.settings, before, rank, world)
        loop.backward(loss_of(model, part, loop.settings))
        optimizer.step()
        rank, world = manager.participating_rank() or 0, max(1, manager.num_participants())
        after = manager.current_step()
        loop.recorder.step(max(after, before + 1), world, after, applied=after > before)


if __name__ == "__main__":
    main()
