"""Shoal with a network namespace for each worker: machines whose cable can be pulled out.

Needs root and iproute2. A bridge joins the namespaces; the coordinator listens on the bridge's own
address. Pulling a cable closes no connection: nothing answers any more, and nobody says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Mapping

from bench.elastic.jobs.job import NotReached
from bench.elastic.jobs.shoal import Shoal

__all__ = ["Apart", "can_be_made"]

_SECONDS = 20.0


def can_be_made() -> bool:
    """Whether namespaces and bridges can be made here."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"sb{uuid.uuid4().hex[:8]}"
    made = subprocess.run(
        ["ip", "link", "add", name, "type", "bridge"], capture_output=True, check=False, timeout=_SECONDS
    )
    if made.returncode == 0:
        _ip("link", "del", name)
    return made.returncode == 0


class Apart(Shoal):
    """Each worker, with its sidecar, in a namespace of its own."""

    _bridge = ""

    def start(self) -> None:
        """The bridge, then coordinator and workers."""
        self._word = uuid.uuid4().hex[:6]
        self._bridge = f"sb{self._word}"
        # the benchmark network (RFC 2544); the process id keeps two runs apart
        self._net = f"198.18.{os.getpid() % 250}"
        self._spaces: list[str] = []
        self._cable_of: dict[str, str] = {}
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self._net}.1/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        super().start()

    def start_coordinator(self) -> None:
        """On the bridge's address."""
        words = [*self.coordinator_words(), "--bind", f"{self._net}.1:0"]
        self.coordinator = self.spawn(words, "coordinator")

    def add(self, environment: Mapping[str, str] | None = None) -> None:
        """One worker more in a namespace of its own."""
        number = self._count + 2
        space, cable = f"{self._bridge}n{number}", f"{self._bridge}c{number}"
        _ip("netns", "add", space)
        self._spaces.append(space)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "wire", "netns", space)
        _ip("link", "set", cable, "master", self._bridge, "up")
        for words in (
            ("addr", "add", f"{self._net}.{number}/24", "dev", "wire"), ("link", "set", "lo", "up"),
            ("link", "set", "wire", "up"),
        ):  # fmt: skip
            _ip("-n", space, *words)
        self._cable_of[f"worker-{self._count}"] = cable
        self._inside = ("ip", "netns", "exec", space)
        super().add({"SHOAL_HOST": f"{self._net}.{number}", **(environment or {})})

    def worker(self, module: str, name: str, environment: Mapping[str, str] | None = None) -> None:
        """In the namespace that was made for it; `ip` becomes the worker."""
        words = [*self._inside, self.python, "-m", f"bench.elastic.workers.{module}"]
        self.spawn(words, name, {**self.settings.environment(name), **(environment or {})})

    def plug(self, name: str, *, connected: bool) -> None:
        """Put in, or pull out, the cable of the worker called `name`."""
        _ip("link", "set", self._cable_of[name], "up" if connected else "down")

    def close(self) -> None:
        """Namespaces take their cables with them."""
        super().close()
        if self._bridge:
            for space in self._spaces:
                _ip("netns", "del", space)
            _ip("link", "del", self._bridge)
            self._bridge = ""


def _ip(*words: str) -> None:
    done = subprocess.run(
        ["ip", *words], stdin=subprocess.DEVNULL, capture_output=True, check=False, text=True,
        timeout=_SECONDS,
    )  # fmt: skip
    if done.returncode:
        raise NotReached(f"ip {' '.join(words)}: {done.stderr.strip()}")
