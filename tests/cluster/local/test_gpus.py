"""The NVIDIA GPUs of a machine, by a library that counts how often it is opened."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from shoal.cluster.local import gpus


class Library(ModuleType):
    """As `pynvml`, with two devices."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.opened = self.closed = 0
        self.busy = {"GPU-a": 50, "GPU-b": 100}

    def nvmlInit(self) -> None:
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.closed += 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.busy)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return list(self.busy)[index]

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in self.busy:
            raise self.NVMLError(uuid)
        return uuid

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(gpu=self.busy[handle])


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(gpus, "_CONTROL", tmp_path)
    return library


def test_the_library_is_opened_once_for_all_questions_and_closed_once(library: Library):
    found = gpus.Gpus()
    assert found.busy_ratio(()) is None and library.opened == 0  # no device, no question
    assert found.busy_ratio(("GPU-a",)) == 0.5
    assert found.busy_ratio(("GPU-a", "GPU-b")) == 0.75
    assert found.busy_ratio(("GPU-of-another-machine",)) is None
    assert found.ids() == ("GPU-a", "GPU-b")
    assert (library.opened, library.closed) == (1, 0)
    found.close()
    found.close()
    assert (library.opened, library.closed) == (1, 1)
    assert gpus.gpu_ids() == ("GPU-a", "GPU-b") and (library.opened, library.closed) == (2, 2)


def test_without_a_driver_there_are_no_devices(library: Library, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpus, "_CONTROL", Path("/nonexistent"))
    assert gpus.gpu_ids() == () and gpus.Gpus().busy_ratio(("GPU-a",)) is None
    assert library.opened == 0
