"""Compares what the workers of a folder ended with, and with a static run. Prints one JSON object.

`python -m bench.elastic.workers.judge [STATIC]`, with the elastic job's settings in the environment.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.elastic.models import Samples, loss_of, model_of
from bench.elastic.settings import Settings
from shoal.elastic.ledger.fetch import Order


def main() -> None:
    """See the module."""
    settings = Settings.here()
    finals = [torch.load(path) for path in sorted(settings.path.glob("final.*.pt"))]
    if not finals:
        raise SystemExit(f"nobody in {settings.folder} came to the end")
    first = finals[0]
    found: dict[str, Any] = {
        "finals": len(finals),
        "steps": first["step"],
        "differing": sum(not _same(first["model"], other["model"]) for other in finals[1:]),
        "loss": _loss(settings, first["model"]),
    }
    if settings.count:
        found |= _counted(settings, first["model"]["counts"])
    if len(sys.argv) > 1:
        found["relative"] = _relative(first["model"], torch.load(Path(sys.argv[1]))["model"])
    print(json.dumps(found))


def _same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def _relative(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """The largest relative difference of a parameter, by norms."""
    return max(float((a[n] - b[n]).norm() / b[n].norm().clamp_min(1e-300)) for n in b if n != "counts")


def _counted(settings: Settings, counts: Tensor) -> dict[str, int]:
    """How many samples were used more or less often than once an epoch."""
    order, expected = Order(settings.samples, settings.order), torch.zeros(settings.samples)
    for epoch in range(settings.epochs):
        for first in range(0, settings.samples, settings.batch):
            end = min(first + settings.batch, settings.samples)
            # a sample of a smaller batch has a larger part in its mean
            expected[order.indices(epoch, first, end)] += settings.batch / (end - first)
    used = -counts
    return {
        "lost": int((used < expected - 0.01).sum()),
        "repeated": int((used > expected + 0.01).sum()),
        "samples": settings.samples * settings.epochs,
    }


def _loss(settings: Settings, state: dict[str, Tensor]) -> float:
    """Over the whole data, without the counts."""
    model, samples = model_of(settings), Samples(settings)
    model.load_state_dict(state)
    model.counts = None
    with torch.no_grad():
        return float(loss_of(model, samples.tensors, settings))


if __name__ == "__main__":
    main()
