"""Which homes this user has on this machine: a task of one must not see the others.

Each home that is made is noted in a folder of the user's (`~/.local/state/shoal/homes`, or
`/var/tmp/shoal-UID/homes` where that cannot be written): a link by a hash of its path. Notes of homes
that are gone are removed. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import zlib
from pathlib import Path

__all__ = ["known", "note"]


def note(home: Path) -> None:
    """Remember that there is a home at the path; idempotent. Nothing happens where nothing can be
    written: then the homes of this user are apart by their own covers alone."""
    name = f"{zlib.crc32(os.fsencode(home)):08x}"
    for folder in _folders():
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid != os.geteuid():
                continue  # in /var/tmp another user may have been first
            link = folder / name
            if not link.is_symlink():
                link.symlink_to(home)
            return


def known() -> list[str]:
    """Paths of the homes that are there."""
    found: list[str] = []
    for folder in _folders():
        with contextlib.suppress(OSError):
            if folder.stat().st_uid != os.geteuid():
                continue
            for link in folder.iterdir():
                home = link.readlink()
                if (home / "run").is_dir():
                    found.append(str(home))
                elif not home.exists():
                    link.unlink(missing_ok=True)
    return sorted(set(found))


def _folders() -> list[Path]:
    uid = os.geteuid()
    shared = Path("/var/tmp") / f"shoal-{uid}" / "homes"
    try:
        return [Path(pwd.getpwuid(uid).pw_dir) / ".local/state/shoal/homes", shared]
    except KeyError:
        return [shared]
