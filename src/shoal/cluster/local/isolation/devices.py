"""Which GPUs a task sees: by its environment always, by device files where the mode is strict.

A device id is what the node lists: an index or a UUID, as CUDA takes them.
"""

from __future__ import annotations

import os

__all__ = ["environment", "files"]


def environment(devices: tuple[str, ...]) -> dict[str, str]:
    """The variables that CUDA and NVIDIA's tools heed; without devices nothing is visible."""
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(devices),
        "NVIDIA_VISIBLE_DEVICES": ",".join(devices) or "void",
    }


def files(devices: tuple[str, ...], root: str = "") -> list[str]:
    """The device files that these GPUs need, of those that there are. `root` is for tests."""
    if not devices:
        return []
    try:
        names = os.listdir(f"{root}/dev")
    except OSError:
        return []
    shared = [name for name in names if name.startswith("nvidia") and not name[6:].isdigit()]
    own = {f"nvidia{minor}" for minor in _minors(devices, root)}
    return [f"/dev/{name}" for name in sorted(shared + [name for name in names if name in own])]


def _minors(devices: tuple[str, ...], root: str) -> list[str]:
    """Numbers of the device files; without the driver's own numbers they are the indices."""
    gpus = f"{root}/proc/driver/nvidia/gpus"
    by_id: dict[str, str] = {}
    try:
        # CUDA counts in the order of bus addresses, which is how these folders are named
        for index, address in enumerate(sorted(os.listdir(gpus))):
            facts = _facts(f"{gpus}/{address}/information")
            minor = facts.get("Device Minor", str(index))
            by_id[str(index)] = by_id[facts.get("GPU UUID", "")] = minor
    except OSError:
        return list(devices)
    return [by_id.get(device, device) for device in devices]


def _facts(path: str) -> dict[str, str]:
    with open(path, encoding="ascii", errors="replace") as file:
        lines = [line.partition(":") for line in file]
    return {name.strip(): value.strip() for name, _, value in lines}
