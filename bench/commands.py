"""What a person waits for: `get`, `run` cold and warm, and what an import costs."""

from __future__ import annotations

import sys

from bench.home import down, fresh_home
from bench.processes import SHOAL, cpu_ms, wall_ms
from bench.row import Row, p50, p95

__all__ = ["rows"]

_FLOOR = [sys.executable, "-c", "import click, msgspec, http.client"]
_EMPTY = [sys.executable, "-c", "pass"]


def rows() -> list[Row]:
    """Four rows; each command alternates with its floor."""
    with fresh_home() as home:
        get, floor, imports, empty, warm, cold = (list[float]() for _ in range(6))
        run = [SHOAL, "run", "--", "true"]
        for _ in range(5):
            down(home)
            cold.append(wall_ms(run, home))
        for _ in range(15):
            get.append(cpu_ms([SHOAL, "get", "jobs"], home))
            floor.append(cpu_ms(_FLOOR))
            imports.append(cpu_ms([sys.executable, "-c", "import shoal"]))
            empty.append(cpu_ms(_EMPTY))
            warm.append(wall_ms(run, home))
    extra = max(0.0, p50(imports) - p50(empty))
    libraries = f"its libraries alone: {p50(floor):.0f} ms"
    bare = f"python -c pass: {p50(empty):.0f} ms CPU"
    return [
        Row("shoal get jobs, CPU", 120, p50(get), "ms", f"p95 {p95(get):.0f}", libraries),
        Row("shoal run -- true, cold", 1500, p50(cold), "ms", f"worst of 5: {max(cold):.0f}", bare),
        Row("shoal run -- true, warm", 400, p50(warm), "ms", f"p95 {p95(warm):.0f}", bare),
        Row("import shoal, CPU", 50, extra, "ms", "", bare),
    ]
