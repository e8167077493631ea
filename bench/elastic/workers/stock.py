"""Stock torch at its fastest: gloo groups, dropped and built anew after a loss. Not a system: a floor.

Survivors learn who died from the operating system (a pidfd per peer), agree on nothing but the largest
step, and lose what was in flight. No way of rebuilding a gloo group with torch's own means is shorter.
"""

from __future__ import annotations

import json
import os
import select
import time
from datetime import timedelta

import torch
from torch import Tensor
from torch.distributed import PrefixStore, ProcessGroupGloo, ReduceOp, TCPStore

from bench.elastic.models import loss_of, take
from bench.elastic.workers.loop import Loop


class _Group:
    """The gloo group of one epoch among the processes that are alive."""

    def __init__(self, store: TCPStore, epoch: int, pids: list[int]) -> None:
        self.rank, self.world = pids.index(os.getpid()), len(pids)
        timeout = timedelta(seconds=float(os.environ.get("BENCH_TIMEOUT", "30")))
        prefix = PrefixStore(f"g{epoch}", store)
        self.gloo = ProcessGroupGloo(prefix, self.rank, self.world, timeout)

    def sum(self, tensor: Tensor, op: ReduceOp.RedOpType = ReduceOp.SUM) -> bool:
        """Reduce in place; whether that succeeded. Keeps no reference to what failed."""
        try:
            self.gloo.allreduce([tensor], op).wait()
        except RuntimeError as error:
            if "gloo" not in str(error).lower():
                raise
            return False
        return True


def main() -> None:
    """Train for ever; process ids of all workers come with `BENCH_PIDS`, a file."""
    loop = Loop()
    store = TCPStore("127.0.0.1", int(os.environ["BENCH_STORE"]), is_master=False)
    pids = _peers(store, int(os.environ["BENCH_WORLD"]))
    watched = {pid: os.pidfd_open(pid) for pid in pids if pid != os.getpid()}
    epoch, step = 0, 0
    group = _Group(store, epoch, pids)
    loop.recorder.event("joined")
    flat = torch.cat([p.detach().flatten() for p in loop.model.parameters()])
    while True:
        step += 1
        loop.begin(step)
        loop.optimizer.zero_grad()
        batch = take(loop.samples, loop.settings, step, group.rank, group.world)
        loop.backward(loss_of(loop.model, batch, loop.settings))
        grads = [p.grad for p in loop.model.parameters() if p.grad is not None]
        torch.cat([grad.flatten() for grad in grads], out=flat)
        if not group.sum(flat):
            began_ns = time.monotonic_ns()
            group.gloo.abort()
            del group  # the last reference: its sockets close, which wakes the others
            pids = _survivors(pids, watched)
            epoch += 1
            group = _Group(store, epoch, pids)
            largest = torch.tensor([float(step - 1)])
            group.sum(largest, ReduceOp.MAX)
            loop.recorder.event(f"rebuilt:{epoch}:{time.monotonic_ns() - began_ns}")
            step = int(largest)
            continue
        at = 0
        for grad in grads:
            grad.copy_(flat[at : at + grad.numel()].view_as(grad)).div_(group.world)
            at += grad.numel()
        loop.optimizer.step()
        loop.recorder.step(step, group.world, step)


def _peers(store: TCPStore, world: int) -> list[int]:
    """Everybody's process id, in the order of their names."""
    store.set(f"pid/{os.environ['BENCH_RANK']}", json.dumps(os.getpid()))
    return [json.loads(store.get(f"pid/{rank}")) for rank in range(world)]


def _survivors(pids: list[int], watched: dict[int, int]) -> list[int]:
    """Who has not ended. Waits up to ten seconds for at least one to have ended."""
    poll = select.poll()
    for descriptor in watched.values():
        poll.register(descriptor, select.POLLIN)
    dead = {descriptor for descriptor, _ in poll.poll(10_000)}
    if not dead:
        raise TimeoutError("a collective failed, and every peer lives")
    gone = {pid for pid, descriptor in watched.items() if descriptor in dead}
    for pid in gone:
        os.close(watched.pop(pid))
    return [pid for pid in pids if pid not in gone]


if __name__ == "__main__":
    main()
