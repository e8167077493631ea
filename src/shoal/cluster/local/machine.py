"""What this machine can give: cores, memory and GPUs, as far as this process may use them.

Limits of the control group that this process is in count like the hardware's own, so that a home in a
container promises what the container has. What cannot be read is taken as no limit.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

__all__ = ["cpu_millis", "gpu_ids", "memory_bytes"]

_NVIDIA_CONTROL = Path("/dev/nvidiactl")
_V1_UNLIMITED_BYTES = 1 << 60


def cpu_millis(root: Path = Path("/")) -> int:
    """Thousandths of a core: the affinity of this process, or its group's quota where less."""
    affinity = hasattr(os, "sched_getaffinity")
    millis = 1000 * (len(os.sched_getaffinity(0)) if affinity else os.cpu_count() or 1)
    for group in _own_groups(root, "cpu"):
        quota = _quota(group)
        if quota is not None:
            millis = min(millis, max(1, int(quota * 1000)))
    return millis


def memory_bytes(root: Path = Path("/")) -> int:
    """The machine's memory, or its group's limit where less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for group in _own_groups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _number(group / name)
            if limit is not None and limit < _V1_UNLIMITED_BYTES:
                total = min(total, limit)
    return total


def gpu_ids() -> tuple[str, ...]:
    """The ids of the NVIDIA GPUs, in the driver's order; none without the driver or nvidia-ml-py.

    The library is loaded only where there is a driver to ask: its start takes a good while.
    """
    if not _NVIDIA_CONTROL.exists():
        return ()
    try:
        nvml: Any = importlib.import_module("pynvml")  # Any: it has no types
    except ImportError:
        return ()
    try:
        nvml.nvmlInit()
        try:
            handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
            return tuple(str(nvml.nvmlDeviceGetUUID(handle)) for handle in handles)
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError:
        return ()


def _own_groups(root: Path, controller: str) -> list[Path]:
    """This process's control group of that controller and its ancestors, v2 and v1."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mounts = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        elif controller in controllers.split(","):
            mounts = [root / "sys/fs/cgroup" / controllers, root / "sys/fs/cgroup" / controller]
        else:
            continue
        for mount in mounts:
            inner = mount / path.strip("/")
            # inside a container the path may be the host's: then the mount itself is the group
            found = inner if inner.is_dir() else mount
            folders += [found, *(p for p in found.parents if p.is_relative_to(mount))]
    return folders


def _quota(group: Path) -> float | None:
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    quota_us = _number(group / "cpu.cfs_quota_us")
    period_us = _number(group / "cpu.cfs_period_us")
    if quota_us is None or not period_us or quota_us <= 0:
        return None
    return quota_us / period_us


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
