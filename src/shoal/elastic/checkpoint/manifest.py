"""What a checkpoint on disk says of itself, and the list of those in a folder.

A checkpoint is a folder `<sequence>-step-<step>-<token>` that holds `manifest.json` and the files that
the manifest names with their sizes and hashes. It gets this name by one rename, when it is complete.
While it is written, its name begins with `.pending-`; while it is removed, with `.removed-`. Order is
by sequence, a number that grows with each checkpoint of the folder; clocks are not asked. Standard
library only.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "FILE",
    "PENDING",
    "REMOVED",
    "File",
    "Manifest",
    "list_checkpoints",
    "parse",
    "read",
    "sequence_of",
    "visible",
    "written",
]

FILE = "manifest.json"
PENDING = ".pending-"
REMOVED = ".removed-"

_FORMAT = 1
_NAME = re.compile(r"\d{8,}-step-\d+-[0-9a-f]{8}")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class File:
    """One file: its size, and the SHA-256 of its bytes ("" if its contents have hashes)."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """`name` is the folder's; `epoch` is the view's in which the step was committed (0: no views)."""

    name: str
    sequence: int
    step: int
    epoch: int
    files: Mapping[str, File]


def list_checkpoints(folder: Path) -> tuple[Manifest, ...]:
    """The complete checkpoints of a folder, newest first; hashes are compared by `load`, not here.

    What has no readable manifest, or lacks a file or a byte, is not listed, and a log line names it.
    """
    found: list[Manifest] = []
    for entry in folder.iterdir() if folder.is_dir() else ():
        if not visible(entry.name):
            continue
        try:
            manifest = read(entry)
            _check_sizes(manifest, entry)
        except (OSError, ValueError) as error:
            if entry.exists():  # else it is an old one that was just removed
                _log.warning("checkpoint %s is not usable: %s", entry.name, error)
            continue
        found.append(manifest)
    return tuple(sorted(found, key=lambda each: (each.sequence, each.step, each.name), reverse=True))


def read(checkpoint: Path) -> Manifest:
    """The manifest of one checkpoint's folder, also a pending one's.

    Raises:
        ValueError: it is damaged, or of a later version.
        OSError: it cannot be read.
    """
    return parse(json.loads((checkpoint / FILE).read_bytes()))


def parse(document: Any) -> Manifest:  # Any: from a file or the coordinator
    """A manifest from JSON as `written` gives it.

    Raises:
        ValueError: it is damaged, or of a later version.
    """
    try:
        if document["format"] != _FORMAT:
            raise ValueError(f"its manifest is of format {document['format']}, this is format {_FORMAT}")
        files = {
            str(name): File(int(f["bytes"]), str(f["sha256"])) for name, f in document["files"].items()
        }
        manifest = Manifest(
            str(document["name"]),
            int(document["sequence"]),
            int(document["step"]),
            int(document["epoch"]),
            files,
        )
        said = document["sha256"]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"its manifest cannot be read ({error!r})") from error
    if said != written(manifest)["sha256"]:
        raise ValueError("the hash of its manifest differs")
    if not _NAME.fullmatch(manifest.name) or any("/" in name for name in files):
        raise ValueError("its manifest names what lies elsewhere")
    return manifest


def written(manifest: Manifest) -> dict[str, Any]:
    """As JSON, with a hash over everything else in it."""
    document: dict[str, Any] = {
        "format": _FORMAT,
        "name": manifest.name,
        "sequence": manifest.sequence,
        "step": manifest.step,
        "epoch": manifest.epoch,
        "files": {name: {"bytes": f.bytes, "sha256": f.sha256} for name, f in manifest.files.items()},
    }
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return {**document, "sha256": hashlib.sha256(canonical.encode()).hexdigest()}


def visible(name: str) -> bool:
    """It is the name of a checkpoint that was complete once: not of a pending or removed one."""
    return _NAME.fullmatch(name) is not None


def sequence_of(name: str) -> int:
    """The sequence in a visible checkpoint's name."""
    return int(name.partition("-")[0])


def _check_sizes(manifest: Manifest, folder: Path) -> None:
    if manifest.name != folder.name:
        raise ValueError(f"its manifest is that of {manifest.name}")
    for name, file in manifest.files.items():
        size = (folder / name).stat().st_size
        if size != file.bytes:
            raise ValueError(f"{name} has {size} bytes instead of {file.bytes}")
