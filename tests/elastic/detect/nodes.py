"""Machines on one network: a namespace each, cabled to a switch, and a cable can be pulled.

Needs root and iproute2; without them tests skip with the reason. Names are unique, and everything is
removed again, also after a failure: a namespace takes its interfaces with it.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

from tests.support.namespaces import namespace, needs, run


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
        run("ip", "-n", self.namespaces[0], "link", "set", f"port{number}", state)


@contextlib.contextmanager
def nodes(count: int) -> Iterator[Nodes]:
    """So many machines besides the switch."""
    needs("ip")
    word = uuid.uuid4().hex[:8]
    names = [f"shoal-{word}-{number}" for number in range(count + 1)]
    with contextlib.ExitStack() as undo:
        for name in names:
            namespace(name, undo)
        switch = ("ip", "-n", names[0])
        bridge = ("link", "add", "switch", "type", "bridge")
        run(*switch, *bridge, or_skip="a bridge cannot be made here")
        run(*switch, "addr", "add", "10.78.0.1/24", "dev", "switch")
        run(*switch, "link", "set", "switch", "up")
        for number, name in enumerate(names[1:], 1):
            wire = ("type", "veth", "peer", "name", "wire", "netns", name)
            run(*switch, "link", "add", f"port{number}", *wire)
            run(*switch, "link", "set", f"port{number}", "master", "switch", "up")
            run("ip", "-n", name, "addr", "add", f"10.78.0.{number + 1}/24", "dev", "wire")
            run("ip", "-n", name, "link", "set", "wire", "up")
        yield Nodes(names)
