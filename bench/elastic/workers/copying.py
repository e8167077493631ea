"""How long one thread takes to copy so many bytes: `... BYTES` prints the median in milliseconds."""

from __future__ import annotations

import statistics
import sys
import time

import torch

_ROUNDS = 9


def main() -> None:
    """See the module."""
    torch.set_num_threads(1)
    source = torch.zeros(int(sys.argv[1]), dtype=torch.uint8)
    target = torch.ones_like(source)
    took: list[float] = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        target.copy_(source)
        took.append(time.perf_counter() - began)
    print(statistics.median(took) * 1e3)


if __name__ == "__main__":
    main()
