"""Network namespaces for tests: made with a name of their own, removed again also after a failure.

They need root and iproute2; without them tests skip with the reason. A namespace takes its interfaces
with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack

from tests.support.require import require

__all__ = ["namespace", "needs", "run"]

_SECONDS = 20


def needs(*tools: str) -> None:
    """Skip, or fail where that is asked for, unless this process may make namespaces with these tools of
    iproute2."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        require("netns", f"{' and '.join(missing)} of iproute2 cannot be found")
    if os.geteuid() != 0:
        require("netns", "making network namespaces needs root")


def namespace(name: str, undo: ExitStack) -> None:
    """Make a namespace and bring its loopback up; `undo` removes it."""
    run("ip", "netns", "add", name, or_skip="namespaces cannot be made here")
    undo.callback(run, "ip", "netns", "del", name)
    run("ip", "-n", name, "link", "set", "lo", "up")


def run(*command: str, or_skip: str = "") -> None:
    """Run a command to its end. `or_skip`: what cannot be had here if it fails.

    Raises:
        RuntimeError: it failed, and there is no reason to skip.
    """
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
    )  # fmt: skip
    if done.returncode != 0 and or_skip:
        require("netns", f"{or_skip}: {done.stderr.strip()}")
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
