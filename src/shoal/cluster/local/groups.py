"""Where a node's tasks have their control groups, from the first agent until the home is down.

The folders are noted on the disk before anything is in them: taking the home down removes them,
also when the agent that made them was killed, or ran in another place than the one before.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import zlib
from pathlib import Path

import msgspec

from shoal import statefiles
from shoal.cluster.local.home import NodeHome
from shoal.cluster.local.isolation import cgroup_parents

__all__ = ["prepare", "release", "scope"]

_log = logging.getLogger(__name__)

_NOTE = "cgroups.json"


def prepare(node: NodeHome) -> dict[str, str]:
    """The folders (by controller) for the groups of this node's tasks; made and noted."""
    found = cgroup_parents.prepare(scope(node))
    note = node.path / _NOTE
    before = _noted(note)
    stale = {key: folder for key, folder in before.items() if folder not in found.values()}
    cgroup_parents.release(stale)
    if found != before:
        with contextlib.suppress(OSError):  # a full disk: then they are found by their name alone
            statefiles.write(note, msgspec.json.encode(found))
    return found


def release(node: NodeHome) -> None:
    """Remove the folders, where no task's group is left in them. Idempotent."""
    note = node.path / _NOTE
    cgroup_parents.release(_noted(note))
    note.unlink(missing_ok=True)


def scope(node: NodeHome) -> str:
    """A name for them that no other home on the machine has."""
    home = node.path.parent.parent
    return f"{zlib.crc32(str(home).encode()):08x}-{node.name}"


def _noted(note: Path) -> dict[str, str]:
    decode = functools.partial(msgspec.json.decode, type=dict[str, str])
    return statefiles.read(note, decode, _log.warning) or {}
