"""One worker of a real gloo group that trains by DiLoCo: `python -m tests.elastic.optim.rank_local`.

Prints one line of JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

from shoal.elastic.optim.local import LocalSteps, Outer
from tests.elastic.codecs.ranks import leave

_STEPS = 240


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    leave(train())


def train() -> dict[str, object]:
    """Each worker sees its own half of the inputs' space; together they must learn all of it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    truth = torch.randn(8, 1)
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(rank)
    inner = torch.optim.AdamW(model.parameters(), lr=1e-2)
    # the momentum of the paper is for hundreds of steps between agreements: with four it oscillates
    outer = Outer(0.7, 0.5)
    local = LocalSteps(list(model.parameters()), 4, outer, bucket_bytes=256)
    first = _loss(model, truth)
    for _ in range(_STEPS):
        inputs = torch.randn(32, 8, generator=generator)
        inputs[:, 0] = inputs[:, 0].abs() * (1 if rank else -1)
        loss = nn.functional.mse_loss(model(inputs), torch.tanh(inputs @ truth))
        inner.zero_grad()
        loss.backward()
        inner.step()
        local.stepped(1.0 + rank, _add_up)
    local.finish()
    local.adopt()
    state = [*local.agreed, *local.velocity]
    return {
        "first": first,
        "last": _loss(model, truth),
        "agreements": local.agreements,
        "digest": [float(each.double().sum()).hex() for each in state],
    }


def _add_up(tensor: torch.Tensor) -> Callable[[], None]:
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None

    def wait() -> None:
        work.wait()

    return wait


def _loss(model: nn.Module, truth: torch.Tensor) -> float:
    inputs = torch.randn(512, 8, generator=torch.Generator().manual_seed(99))
    with torch.no_grad():
        return nn.functional.mse_loss(model(inputs), torch.tanh(inputs @ truth)).item()


if __name__ == "__main__":
    main()
