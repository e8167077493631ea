"""What coding and decoding 64 MiB of gradients costs, beside torch's communication hooks.

`python -m bench.elastic.codecs` prints the table by itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from bench.elastic.report import Report
from bench.elastic.spread import p50, ratio
from bench.row import Row, table

__all__ = ["codecs"]

_SECONDS = 500.0


def codecs(rounds: int = 20, python: Sequence[str] = (sys.executable,)) -> Report:
    """One row a codec: the time of both together, on one thread, with nothing sent."""
    done = subprocess.run(
        [*python, "-m", "bench.elastic.workers.codecs", str(rounds)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_SECONDS,
        check=True,
    )
    measured: dict[str, list[list[float]]] = json.loads(done.stdout.splitlines()[-1])
    load = os.getloadavg()[0]
    return Report([_row(name, pairs, load) for name, pairs in measured.items()])


def _row(name: str, pairs: list[list[float]], load: float) -> Row:
    ours, theirs = ([pair[way] for pair in pairs] for way in (0, 1))
    found = ratio(ours, theirs)
    return Row(
        f"{name}: code and decode 64 MiB",
        100.0,
        found.mean * 100,
        "% of torch's hook",
        f"95 % interval {found.low * 100:.0f} to {found.high * 100:.0f}",
        f"{p50(ours) * 1e3:.1f} ms; torch's hook {p50(theirs) * 1e3:.1f} ms",
        load=load,
    )


if __name__ == "__main__":
    print(table(codecs().rows))
