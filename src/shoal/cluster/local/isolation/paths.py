"""Where a folder lies, and where else it can be seen."""

from __future__ import annotations

import os

__all__ = ["aliases", "control_group_mounts", "within"]


def within(path: str, folder: str) -> bool:
    """True when the path is the folder or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def aliases(path: str, mountinfo: str | None = None) -> list[str]:
    """Every place where the folder can be seen: its own first, then those that other mounts of the
    same file system give it. `mountinfo` is for tests."""
    if mountinfo is None:
        with open("/proc/self/mountinfo", errors="surrogateescape") as file:
            mountinfo = file.read()
    lines = map(str.split, mountinfo.splitlines())
    mounts = [(fields[2], _plain(fields[3]), _plain(fields[4])) for fields in lines]
    here = [mount for mount in mounts if within(path, mount[2])]
    if not here:
        return [path]
    # of several on one place the last is the one that is seen
    device, root, point = max(reversed(here), key=lambda mount: len(mount[2]))
    inside = os.path.normpath(root + path[len(point.rstrip("/")) :])
    found = [path]
    for other_device, other_root, other_point in mounts:
        if other_device == device and within(inside, other_root):
            place = os.path.normpath(other_point + inside[len(other_root.rstrip("/")) :])
            if place not in found and _same(place, path):
                found.append(place)
    return found


def control_group_mounts() -> list[str]:
    """Every place where control groups are mounted."""
    with open("/proc/self/mountinfo", errors="surrogateescape") as file:
        lines = [line.split() for line in file]
    return [_plain(line[4]) for line in lines if line[line.index("-") + 1] in ("cgroup", "cgroup2")]


def _plain(field: str) -> str:
    """A path as mountinfo writes it, with its escapes undone."""
    if "\\" not in field:
        return field
    parts = field.split("\\")
    return parts[0] + "".join(chr(int(part[:3], 8)) + part[3:] for part in parts[1:])


def _same(place: str, path: str) -> bool:
    try:
        return os.path.samefile(place, path)
    except OSError:
        return False
