"""The platform of one machine: agents' tasks and nodes, log files and settings under one home."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.clock import Clock
from shoal.cluster.local import components
from shoal.cluster.local.home import Home
from shoal.cluster.local.settings import LiveSettings
from shoal.cluster.local.watchdog import Watchdog
from shoal.cluster.platform import ClusterSettings, Worker
from shoal.objects.errors import Unavailable

if TYPE_CHECKING:
    from shoal.cluster.local.cluster import LocalCluster
    from shoal.history.files import FileLogs


class LocalPlatform:
    """See `shoal.cluster.platform.Platform`."""

    def __init__(self, home: Home, clock: Clock) -> None:
        self._home = home
        self._clock = clock
        self._settings = LiveSettings(home, self._warn)
        self._reports: list[Callable[[str], None]] = []
        self._watchdog = Watchdog(home, self._agents)
        self._cluster: LocalCluster | None = None
        self._logs: FileLogs | None = None

    @property
    def name(self) -> str:
        """See `Platform.name`: the home's path."""
        return str(self._home.path)

    @property
    def task_api(self) -> str:
        return f"unix://{self._home.tasks_socket}"

    @property
    def keys(self) -> Path:
        return self._home.keys

    @property
    def decisions(self) -> Path:
        return self._home.decisions

    @property
    def history(self) -> Path:
        return self._home.history_db

    @property
    def cluster(self) -> LocalCluster:
        if self._cluster is None:
            raise Unavailable("the server is not connected to its nodes yet", hint="try again")
        return self._cluster

    @property
    def logs(self) -> FileLogs:
        if self._logs is None:
            raise Unavailable("the server has not opened its logs yet", hint="try again")
        return self._logs

    def output(self, namespace: str, job_uid: str) -> Path:
        return self._home.output / namespace / job_uid

    def settings(self) -> ClusterSettings:
        return self._settings()

    def warnings(self) -> tuple[str, ...]:
        self._settings()
        return tuple(filter(None, (self._settings.problem, self._watchdog.problem)))

    def on_warning(self, report: Callable[[str], None]) -> None:
        self._reports.append(report)

    def workers(self) -> tuple[Worker, ...]:
        """See `Platform.workers`: the watchdog that restarts agents."""
        return (self._watchdog,)

    def open(self) -> None:
        from shoal.cluster.local.cluster import LocalCluster  # late: the socket listens before
        from shoal.history.files import FileLogs

        self._logs = self._logs or FileLogs(self._home.logs)
        self._cluster = self._cluster or LocalCluster(self._home, self._clock)

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    def _agents(self) -> list[str]:
        return [each for each in components.components_of(self._home) if each != components.SERVER]

    def _warn(self, problem: str) -> None:
        for report in self._reports:
            report(problem)
