"""Machines on one network: a namespace each, cabled to a switch, and a cable can be pulled.

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

_SECONDS = 20


class Nodes:
    """`namespaces[n]` has the address `10.78.0.(n + 1)`; the first is the switch itself."""

    def __init__(self, namespaces: list[str]) -> None:
        self.namespaces = namespaces

    def address(self, number: int) -> str:
        return f"10.78.0.{number + 1}"

    def inside(self, number: int) -> list[str]:
        """What makes a command run there."""
        return ["ip", "netns", "exec", self.namespaces[number]]

    def pull(self, number: int) -> None:
        """The cable: nothing reaches that machine or leaves it, and nobody is told."""
        self._set(number, "down")

    def plug(self, number: int) -> None:
        self._set(number, "up")

    def _set(self, number: int, state: str) -> None:
        _run("ip", "-n", self.namespaces[0], "link", "set", f"port{number}", state)


@contextlib.contextmanager
def nodes(count: int) -> Iterator[Nodes]:
    """So many machines besides the switch."""
    if shutil.which("ip") is None:
        require("netns", "ip of iproute2 cannot be found")
    if os.geteuid() != 0:
        require("netns", "making network namespaces needs root")
    word = uuid.uuid4().hex[:8]
    names = [f"shoal-{word}-{number}" for number in range(count + 1)]
    with contextlib.ExitStack() as undo:
        for name in names:
            made = _run("ip", "netns", "add", name, check=False)
            if made.returncode != 0:
                require("netns", f"namespaces cannot be made here: {made.stderr.strip()}")
            undo.callback(_run, "ip", "netns", "del", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
        switch = ("ip", "-n", names[0])
        made = _run(*switch, "link", "add", "switch", "type", "bridge", check=False)
        if made.returncode != 0:
            require("netns", f"a bridge cannot be made here: {made.stderr.strip()}")
        _run(*switch, "addr", "add", "10.78.0.1/24", "dev", "switch")
        _run(*switch, "link", "set", "switch", "up")
        for number, name in enumerate(names[1:], 1):
            ends = (
                "link",
                "add",
                f"port{number}",
                "type",
                "veth",
                "peer",
                "name",
                "wire",
                "netns",
                name,
            )
            _run(*switch, *ends)
            _run(*switch, "link", "set", f"port{number}", "master", "switch", "up")
            _run("ip", "-n", name, "addr", "add", f"10.78.0.{number + 1}/24", "dev", "wire")
            _run("ip", "-n", name, "link", "set", "wire", "up")
        yield Nodes(names)


def _run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
    )  # fmt: skip
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done
