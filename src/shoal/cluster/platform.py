"""The Platform: everything that one cluster brings to the server that drives it.

The server assembles itself from a `Platform` and a `Store`, and knows neither a home folder nor a
Kubernetes namespace. `cluster.local.platform.LocalPlatform` is the platform of one machine.

**Lifecycle.** Made by the process' entry point; `open` connects to the cluster and is called again
while it raises; `cluster` and `logs` are there afterwards; then the `workers` are opened, in order.
`close` ends the connections; tasks, nodes and their agents go on.

**Threads.** Everything may be called from any thread. `settings` and `warnings` may read
a file: the server calls them off its event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from shoal.cluster.base import Cluster
from shoal.history.base import Logs
from shoal.objects.meta import Part


class ClusterSettings(Part, frozen=True, kw_only=True):
    """Settings of the whole cluster; changes take effect at the next decision."""

    topology: tuple[str, ...] = ()
    """Labels of nodes that are levels of the topology, the widest first: block, rack. The node itself
    follows them."""
    policy: str = "shoal"
    """The scheduling policy: a name in `shoal.schedule.cycle.peers.named`."""
    record: int = 20
    """How many of the newest decisions are kept as files."""


class Worker(Protocol):
    """Background work of a platform, in threads of its own."""

    @property
    def name(self) -> str:
        """Unique in a platform; shown by `/readyz`."""
        ...

    def open(self) -> None:
        """Begin.

        Raises:
            ShoalError, OSError: it cannot; call again later.
        """

    def close(self) -> None:
        """End; idempotent."""


class Platform(Protocol):
    """See the module's docstring."""

    @property
    def name(self) -> str:
        """Identifies this server among those that share a store; shown by `/version` to the owner."""
        ...

    @property
    def task_api(self) -> str:
        """The address at which tasks reach the API: `$SHOAL_API`."""
        ...

    @property
    def keys(self) -> Path:
        """A folder that only the server can read: the signing key of job tokens, hashed user tokens."""
        ...

    @property
    def decisions(self) -> Path:
        """A folder for recorded decisions."""
        ...

    @property
    def history(self) -> str | Path:
        """The database of history: a file, or a URL."""
        ...

    @property
    def cluster(self) -> Cluster:
        """Nodes and tasks.

        Raises:
            Unavailable: `open` has not succeeded yet.
        """
        ...

    @property
    def logs(self) -> Logs:
        """The logs of running and of ended tasks.

        Raises:
            Unavailable: `open` has not succeeded yet.
        """
        ...

    def output(self, namespace: str, job_uid: str) -> Path | None:
        """The output folder of a job, which its tasks know as `$SHOAL_OUTPUT`; None where the server
        cannot read it."""
        ...

    def settings(self) -> ClusterSettings:
        """The settings that hold now. May read a file."""
        ...

    def warnings(self) -> tuple[str, ...]:
        """Problems that stop nothing, one sentence each, as of now. May read a file."""
        ...

    def on_warning(self, report: Callable[[str], None]) -> None:
        """Call `report` once for each new warning, on the thread that found it."""

    def workers(self) -> tuple[Worker, ...]:
        """The platform's background work; the same workers at each call."""
        ...

    def open(self) -> None:
        """Connect to the cluster; nothing when it is connected.

        Raises:
            ShoalError, OSError: it cannot; call again later.
        """

    def close(self) -> None:
        """Close the connections; the owner of the workers closes those. Idempotent."""
