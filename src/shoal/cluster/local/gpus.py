"""The NVIDIA GPUs of this machine, by NVIDIA's management library (NVML, package nvidia-ml-py).

The library is loaded where there is a driver to ask, at the first question: its start takes long.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_CONTROL = Path("/dev/nvidiactl")


class Gpus:
    """The opened library; it is initialised once, and shut down by `close`. Not thread-safe."""

    def __init__(self) -> None:
        self._nvml: Any = None  # Any: the library has no types
        self._missing = False

    def ids(self) -> tuple[str, ...]:
        """The ids of all devices, in the driver's order."""

        def read(nvml: Any) -> tuple[str, ...]:
            handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
            return tuple(str(nvml.nvmlDeviceGetUUID(handle)) for handle in handles)

        return self._ask(read) or ()

    def busy_ratio(self, devices: Sequence[str]) -> float | None:
        """How busy these devices are, on average; None without any, or where it is unknown."""

        def read(nvml: Any) -> float:
            handles = map(nvml.nvmlDeviceGetHandleByUUID, devices)
            percent = sum(nvml.nvmlDeviceGetUtilizationRates(handle).gpu for handle in handles)
            return percent / len(devices) / 100.0

        return self._ask(read) if devices else None

    def close(self) -> None:
        """Shut the library down; idempotent."""
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            nvml.nvmlShutdown()

    def _ask(self, read: Callable[[Any], T]) -> T | None:
        if self._nvml is None and not self._missing:
            self._open()
        if self._nvml is None:
            return None
        try:
            return read(self._nvml)
        except self._nvml.NVMLError:
            return None

    def _open(self) -> None:
        self._missing = True  # until it is there
        if not _CONTROL.exists():
            return
        try:
            nvml: Any = importlib.import_module("pynvml")
        except ImportError:
            return
        try:
            nvml.nvmlInit()
        except nvml.NVMLError:
            return
        self._nvml, self._missing = nvml, False


def gpu_ids() -> tuple[str, ...]:
    """The ids of the NVIDIA GPUs, in the driver's order; none without the driver or nvidia-ml-py."""
    with closing(Gpus()) as gpus:
        return gpus.ids()
