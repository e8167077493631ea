"""Removes what tasks leave on the disk. Mounts, namespaces and their networks need nothing: they end
with the last process; control groups are `cgroups.remove_strays`' to end.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.cluster.local.isolation import sandbox

__all__ = ["remove_tree", "sweep_sandboxes"]


def remove_tree(folder: Path) -> list[str]:
    """Remove a folder, whatever a task made of it (one that nobody may read or enter, too); what could
    not be removed, with the reasons. Idempotent."""
    failures: list[str] = []

    def retry(function: Callable[..., Any], path: str, error: Any) -> None:  # as shutil calls it
        parent = os.path.dirname(path)
        try:
            for place in (parent, path):
                if not os.path.islink(place) and os.path.isdir(place):
                    os.chmod(place, stat.S_IRWXU)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as reason:
            failures.append(f"{path}: {reason.strerror}")

    shutil.rmtree(folder, onerror=retry)
    return failures


def sweep_sandboxes(folder: Path) -> None:
    """Forget, below the folder of all sandboxes (by namespace and job uid), those without tasks."""
    for lock in folder.glob("*/*/lock"):
        sandbox.sweep(str(lock.parent))
