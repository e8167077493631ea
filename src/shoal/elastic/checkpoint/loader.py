"""The newest complete state of a folder, from memory or disk, at whatever world size.

Copies in memory and checkpoints on disk are tried by their sequence, newest first. What is damaged is
passed over with a log line; if nothing is left, that is an error: training never begins anew in silence.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from shoal.elastic.checkpoint import dcp, durable, layout, slots, tree
from shoal.elastic.checkpoint import manifest as manifests
from shoal.elastic.checkpoint.manifest import Manifest
from shoal.elastic.checkpoint.memory import committed, place_for
from shoal.elastic.errors import CheckpointError

__all__ = ["Loaded", "load"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Loaded:
    """A state as it was given to `Saver.stage`; its tensors are on the CPU and not shared."""

    state: dict[str, Any]
    step: int
    sequence: int
    epoch: int
    tier: Literal["memory", "disk"]


@dataclass(frozen=True)
class _Candidate:
    name: str
    sequence: int
    step: int
    open: Callable[[], Loaded]


def load(
    folder: Path, *, memory: bool | Path = True, published: Mapping[str, Any] | None = None
) -> Loaded | None:
    """The newest complete state; None when there is none at all, so the training begins.

    `memory` is as `Saver` has it: where a dead trainer's copy may lie. `published` is the manifest that
    the coordinator holds: then no other checkpoint on disk counts as newer, and a copy in memory only if
    it is of that epoch or a later one.

    Raises:
        CheckpointError: `Damaged`: there are checkpoints, and none can be trusted.
        OSError: the folder cannot be read.
    """
    limit = None if published is None else _adopted(folder, published)
    found: list[_Candidate] = []
    place = place_for(folder, memory)
    for path, head in [] if place is None else committed(place):
        if limit is None or (head.sequence >= limit.sequence and head.epoch >= limit.epoch):
            found.append(_Candidate(str(path), head.sequence, head.step, _from_memory(path)))
    for manifest in manifests.list_checkpoints(folder):
        if limit is None or manifest.name == limit.name or manifest.sequence < limit.sequence:
            path = folder / manifest.name
            found.append(
                _Candidate(manifest.name, manifest.sequence, manifest.step, _from_disk(path, manifest))
            )
    found.sort(key=lambda each: (each.sequence, each.step), reverse=True)
    for candidate in found:
        try:
            return candidate.open()
        except (CheckpointError, OSError, ValueError) as error:
            _log.warning(
                "checkpoint %s is damaged, the one before it is used: %s", candidate.name, error
            )
    if found or limit is not None or _anything(folder):
        raise CheckpointError(
            "Damaged",
            f"there are checkpoints in {folder} and none of them can be used: "
            "bring one back, or give another folder to begin anew",
        )
    return None


def _adopted(folder: Path, published: Mapping[str, Any]) -> Manifest:
    manifest = manifests.parse(published)
    if not durable.adopt(folder, manifest):
        _log.warning("checkpoint %s was published and is not in %s", manifest.name, folder)
    return manifest


def _from_memory(path: Path) -> Callable[[], Loaded]:
    def open_copy() -> Loaded:
        copy = slots.read(path)
        head = copy.header
        state = tree.join(copy.plain, copy.tensors)
        return Loaded(state, head.step, head.sequence, head.epoch, "memory")

    return open_copy


def _from_disk(path: Path, manifest: Manifest) -> Callable[[], Loaded]:
    def open_checkpoint() -> Loaded:
        for name, file in manifest.files.items():
            if file.sha256 and hashlib.sha256((path / name).read_bytes()).hexdigest() != file.sha256:
                raise CheckpointError("Damaged", f"the hash of {name} differs")
        found: Any = json.loads((path / durable.STATE).read_bytes())
        places = layout.read(found["tensors"])
        tensors = layout.views(places, torch.empty(layout.extent(places), dtype=torch.uint8))
        dcp.fill(tensors, path)
        layout.check(places, tensors)
        state = tree.join(found["plain"], tensors)
        return Loaded(state, manifest.step, manifest.sequence, manifest.epoch, "disk")

    return open_checkpoint


def _anything(folder: Path) -> bool:
    return folder.is_dir() and any(manifests.visible(entry.name) for entry in folder.iterdir())
