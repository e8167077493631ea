"""Network namespaces joined by a shaped cable, for tests and benchmarks that need a slow network.

Needs root and iproute2; without them tests skip with the reason. Names are unique, and everything is
removed again, also after a failure: a namespace takes its interfaces with it.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

from shoal.testing.namespaces import namespace, needs, run

__all__ = ["cable"]


@contextlib.contextmanager
def cable(rate: str) -> Iterator[tuple[str, str]]:
    """Two namespaces with one interface `wire` each, 10.77.0.1 and 10.77.0.2, that send at most `rate`
    (as `tc` writes it, such as "1gbit"), each way."""
    needs("ip", "tc")
    word = uuid.uuid4().hex[:8]
    names = (f"shoal-{word}-a", f"shoal-{word}-b")
    with contextlib.ExitStack() as undo:
        for name in names:
            namespace(name, undo)
        ends = [f"s{word}{letter}" for letter in "ab"]
        pair = (ends[0], "type", "veth", "peer", "name", ends[1])
        run("ip", "link", "add", *pair, or_skip="veth interfaces cannot be made here")
        for number, (name, end) in enumerate(zip(names, ends, strict=True), 1):
            # once both ends are inside, the namespaces remove them
            run("ip", "link", "set", end, "netns", name, "name", "wire")
            inside = ("ip", "-n", name)
            run(*inside, "addr", "add", f"10.77.0.{number}/24", "dev", "wire")
            run(*inside, "link", "set", "wire", "up")
            shape = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
            queue = ("qdisc", "add", "dev", "wire", *shape)
            run("tc", "-n", name, *queue, or_skip="tbf cannot be had here")
        yield names
