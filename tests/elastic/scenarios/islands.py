"""Two islands of workers, and between them a router with the coordinator: networks that can be cut.

Namespaces and veth pairs: needs root and iproute2; without them tests skip with the reason. A namespace
takes its interfaces with it.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.namespaces import namespace, needs, run

__all__ = ["ROUTER", "Islands", "islands"]

ROUTER = "10.79.0.1"
"""Where the coordinator listens; both islands have a way there."""


@dataclass(frozen=True)
class Islands:
    """`word` is in the names of all three namespaces; islands are numbered 1 and 2."""

    word: str

    @property
    def router(self) -> str:
        """The namespace of the coordinator."""
        return f"shoal-{self.word}-r"

    def network(self, number: int) -> str:
        """The file of an island's namespace."""
        return f"/run/netns/shoal-{self.word}-{number}"

    def host(self, number: int) -> str:
        """An island's address."""
        return f"10.79.{number}.2"

    def forward(self, on: bool) -> None:
        """Whether the islands reach each other; both reach the coordinator all the same."""
        run("ip", "netns", "exec", self.router, "sysctl", "-qw", f"net.ipv4.ip_forward={int(on)}")

    def link(self, number: int, on: bool) -> None:
        """Whether an island reaches anybody."""
        run("ip", "-n", self.router, "link", "set", f"to{number}", "up" if on else "down")


@contextlib.contextmanager
def islands() -> Iterator[Islands]:
    """Both islands and the router, all connected."""
    needs("ip")
    made = Islands(uuid.uuid4().hex[:6])
    with contextlib.ExitStack() as undo:
        for name in (made.router, *(f"shoal-{made.word}-{number}" for number in (1, 2))):
            namespace(name, undo)
        run("ip", "-n", made.router, "addr", "add", f"{ROUTER}/32", "dev", "lo")
        for number in (1, 2):
            inside = ("ip", "-n", f"shoal-{made.word}-{number}")
            peer = ("peer", "name", "wire", "netns", f"shoal-{made.word}-{number}")
            run("ip", "-n", made.router, "link", "add", f"to{number}", "type", "veth", *peer)
            run("ip", "-n", made.router, "addr", "add", f"10.79.{number}.1/24", "dev", f"to{number}")
            run("ip", "-n", made.router, "link", "set", f"to{number}", "up")
            run(*inside, "addr", "add", f"{made.host(number)}/24", "dev", "wire")
            run(*inside, "link", "set", "wire", "up")
            run(*inside, "route", "add", "default", "via", f"10.79.{number}.1")
        made.forward(True)
        yield made
