"""Network namespaces joined by a shaped cable, for tests and benchmarks that need a slow network.

Needs root and iproute2; without them tests skip with the reason. Names are unique, and everything is
removed again, also after a failure: a namespace takes its interfaces with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator

from shoal.testing.require import require

__all__ = ["cable"]

_SECONDS = 20


@contextlib.contextmanager
def cable(rate: str) -> Iterator[tuple[str, str]]:
    """Two namespaces with one interface `wire` each, 10.77.0.1 and 10.77.0.2, that send at most `rate`
    (as `tc` writes it, such as "1gbit"), each way."""
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        require("netns", f"{' and '.join(missing)} of iproute2 cannot be found")
    if os.geteuid() != 0:
        require("netns", "making network namespaces needs root")
    word = uuid.uuid4().hex[:8]
    names = (f"shoal-{word}-a", f"shoal-{word}-b")
    with contextlib.ExitStack() as undo:
        for name in names:
            made = _run("ip", "netns", "add", name, check=False)
            if made.returncode != 0:
                require("netns", f"namespaces cannot be made here: {made.stderr.strip()}")
            undo.callback(_run, "ip", "netns", "del", name)
        ends = [f"s{word}{letter}" for letter in "ab"]
        made = _run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1], check=False)
        if made.returncode != 0:
            require("netns", f"veth interfaces cannot be made here: {made.stderr.strip()}")
        for number, (name, end) in enumerate(zip(names, ends, strict=True), 1):
            # once both ends are inside, the namespaces remove them
            _run("ip", "link", "set", end, "netns", name, "name", "wire")
            inside = ("ip", "-n", name)
            _run(*inside, "addr", "add", f"10.77.0.{number}/24", "dev", "wire")
            _run(*inside, "link", "set", "lo", "up")
            _run(*inside, "link", "set", "wire", "up")
            shape = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
            shaped = _run("tc", "-n", name, "qdisc", "add", "dev", "wire", *shape, check=False)
            if shaped.returncode != 0:
                require("netns", f"tbf cannot be had here: {shaped.stderr.strip()}")
        yield names


def _run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done
