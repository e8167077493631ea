"""Shoal without the platform: a coordinator by itself, and workers that find it in the job's folder."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
from collections.abc import Mapping

from bench.elastic.jobs.job import Job

__all__ = ["Shoal"]


class Shoal(Job):
    """Workers join, and are replaced, by whoever runs them: here the driver."""

    system = "Shoal"
    coordinator: subprocess.Popen[bytes]

    def start(self) -> None:
        """The coordinator writes where it is; workers wait for that."""
        self._count = 0
        self.start_coordinator()
        for _ in range(self.world):
            self.add()

    def start_coordinator(self) -> None:
        """Start it, or one in place of one that has ended; its record is in the folder."""
        self.coordinator = self.spawn(self.coordinator_words(), "coordinator")

    def coordinator_words(self) -> list[str]:
        """Its command line."""
        words = [self.python, "-m", "shoal.elastic.coordinator", "--minimum", "1"]
        words += ["--expect", str(self.world), "--sqlite", str(self.folder / "record.db")]
        return [*words, "--address-file", str(self.folder / "coordinator.json")]

    def changes(self) -> tuple[str, ...]:
        """By the coordinator: each view after a loss, and why somebody was counted lost."""
        path = self.folder / "record.db"
        with contextlib.closing(
            sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5)
        ) as kept:
            row = kept.execute("SELECT data FROM report ORDER BY number DESC LIMIT 1").fetchone()
        told = json.loads(row[0])["recoveries"] if row else []
        return tuple(
            f"epoch {each['epoch']}, {each['world']} left: {'; '.join(each['lost']) or 'nobody lost'}"
            for each in told
        )

    def complaint(self) -> str:
        """The last words of a process that has failed by itself."""
        for process in self._started:
            if (process.poll() or 0) > 0:
                name = self._names[process.pid]
                said = (self.folder / f"{name}.log").read_text().strip().splitlines()
                return f"{name} ended with status {process.returncode}: {said[-1] if said else ''}"
        return ""

    def add(self, environment: Mapping[str, str] | None = None) -> None:
        """One worker more, under a new name."""
        name = f"worker-{self._count}"
        self._count += 1
        told = {"SHOAL_ELASTIC": str(self.folder), "SHOAL_ELASTIC_NAME": name}
        self.worker("elastic", name, {**told, **(environment or {})})
