"""What tasks use: from their control groups where those count, else from the process table.

The agent looks at all tasks at once every few seconds, which is also how it notices that one has
stopped working (`idle_since`), and peaks where the kernel keeps none. Between looks a question is
answered by reading anew.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from shoal.cluster.base import Usage
from shoal.cluster.local.gpus import Gpus
from shoal.cluster.local.node import Node
from shoal.cluster.local.supervisor_processes import below
from shoal.cluster.local.supervisor_processes import table as all_processes
from shoal.objects.task import TaskKey

SAMPLE_SECONDS = 2.0
WINDOW_SECONDS = 4.0
"""Idle or not is judged over so long."""
IDLE_RATIO = 0.01
"""Of a core."""

_TICK_SECONDS = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
Table = dict[int, list[str]]
"""See `supervisor_processes.table`."""


@dataclass
class _History:
    samples: deque[tuple[float, float, float]] = field(default_factory=deque[tuple[float, float, float]])
    """(monotonic, wall, CPU seconds), over the window."""
    peak_memory_bytes: int = 0


class Meter:
    """Measures the tasks of a node. Belongs to the loop's thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._histories: dict[TaskKey, _History] = {}
        self._gpus = Gpus()

    def open(self) -> None:
        """Begin to look every few seconds."""
        self._node.loop.later(SAMPLE_SECONDS, self._sample)

    def close(self) -> None:
        """Let go of the devices."""
        self._gpus.close()

    def usages(self, keys: Iterable[TaskKey]) -> tuple[Usage | None, ...]:
        """What each task has used so far, or had when it ended; None: it is not here."""
        keys = tuple(keys)
        running = (key for key in keys if key in self._node.monitors)
        table = all_processes() if any(not self._counted(key) for key in running) else {}
        return tuple(self._usage(key, table) for key in keys)

    def _usage(self, key: TaskKey, table: Table) -> Usage | None:
        record = self._node.ledger.tasks.get(key)
        if record is None:
            return None
        progress = record.progress
        if progress.outcome is not None:
            return progress.usage
        cpu, memory, peak = self._measure(key, table)
        history = self._histories.setdefault(key, _History())
        history.peak_memory_bytes = max(history.peak_memory_bytes, peak, memory)
        return Usage(
            cpu_seconds=cpu,
            memory_bytes=memory,
            peak_memory_bytes=history.peak_memory_bytes,
            gpu_ratio=self._gpus.busy_ratio(record.spec.placement.devices),
        )

    def _sample(self) -> None:
        running = [key for key, monitor in self._node.monitors.items() if monitor.started]
        for key in self._histories.keys() - set(running):
            del self._histories[key]
        table = all_processes() if any(not self._counted(key) for key in running) else {}
        for key in running:
            self._judge(key, *self._measure(key, table))
        self._node.loop.later(SAMPLE_SECONDS, self._sample)

    def _judge(self, key: TaskKey, cpu: float, memory: int, peak: int) -> None:
        history = self._histories.setdefault(key, _History())
        history.peak_memory_bytes = max(history.peak_memory_bytes, peak, memory)
        now, samples = self._node.clock.monotonic(), history.samples
        samples.append((now, self._node.clock.now(), cpu))
        while len(samples) > 2 and now - samples[1][0] >= WINDOW_SECONDS:
            samples.popleft()
        begin, wall, before = samples[0]
        if now - begin < WINDOW_SECONDS:
            return
        idle = (cpu - before) / (now - begin) < IDLE_RATIO
        if idle and key not in self._node.idle_since:
            self._node.idle_since[key] = wall
            self._node.turn.changed(key)
        elif not idle and self._node.idle_since.pop(key, None) is not None:
            self._node.turn.changed(key)

    def _counted(self, key: TaskKey) -> bool:
        """True when control groups count all that the process table would be asked for."""
        monitor = self._node.monitors[key]
        groups = monitor.started.cgroups if monitor.started is not None else ()
        return _group_cpu(groups) is not None and _group_memory(groups)[0] is not None

    def _measure(self, key: TaskKey, table: Table) -> tuple[float, int, int]:
        """CPU seconds, memory, and peak memory (0: not kept)."""
        monitor = self._node.monitors.get(key)
        if monitor is None:
            return 0.0, 0, 0
        groups = monitor.started.cgroups if monitor.started is not None else ()
        cpu = _group_cpu(groups)
        memory, peak = _group_memory(groups)
        if cpu is None or memory is None:
            all_cpu, all_memory = _used_below(monitor.pid, table or all_processes())
            cpu = all_cpu if cpu is None else cpu
            memory = all_memory if memory is None else memory
        return cpu, memory, peak


def _used_below(pid: int, table: Table) -> tuple[float, int]:
    """CPU seconds of the descendants of a process, and of their children that have ended, and memory."""
    found = [table[each] for each in below(pid, table)] if pid else []
    ticks = sum(int(value) for fields in found for value in fields[11:15])
    return ticks * _TICK_SECONDS, sum(int(fields[21]) for fields in found) * _PAGE_BYTES


def _group_cpu(groups: Iterable[str]) -> float | None:
    for group in groups:
        nanoseconds = _number(f"{group}/cpuacct.usage")
        if nanoseconds is not None:
            return nanoseconds / 1e9
        try:
            for line in Path(group, "cpu.stat").read_text().splitlines():
                if line.startswith("usage_usec "):
                    return int(line.split()[1]) / 1e6
        except OSError:
            continue
    return None


def _group_memory(groups: Iterable[str]) -> tuple[int | None, int]:
    for group in groups:
        for now, peak in (
            ("memory.current", "memory.peak"),
            ("memory.usage_in_bytes", "memory.max_usage_in_bytes"),
        ):
            memory = _number(f"{group}/{now}")
            if memory is not None:
                return memory, _number(f"{group}/{peak}") or 0
    return None, 0


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None
