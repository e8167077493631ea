"""Removes what tasks leave on the disk. Mounts, namespaces and their networks need nothing: they end
with the last process; control groups are `cgroups.remove_strays`' to end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

from shoal.cluster.local.isolation import sandbox

__all__ = ["remove_tree", "sweep_sandboxes"]


def remove_tree(folder: Path) -> list[str]:
    """Remove a folder, whatever a task made of it (one that nobody may read or enter, too); what could
    not be removed, with the reasons. Idempotent."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        if not folder.exists():
            return []
    except OSError:
        _open_up(folder)
    failures: list[str] = []
    if folder.exists():
        # the third argument is as shutil gives it: type, error and traceback
        shutil.rmtree(folder, onerror=lambda _, path, error: failures.append(f"{path}: {error[1]}"))
    return failures


def sweep_sandboxes(folder: Path) -> None:
    """Forget, below the folder of all sandboxes (by namespace and job uid), those without tasks."""
    for lock in folder.glob("*/*/lock"):
        sandbox.sweep(str(lock.parent))


def _open_up(folder: Path) -> None:
    """Make every folder below one that we may list and change, from the top down."""
    for place, names, _ in os.walk(folder):
        for name in names:
            path = Path(place, name)
            with contextlib.suppress(OSError):  # its removal will say why
                if not path.is_symlink():
                    path.chmod(stat.S_IRWXU)
