"""Where a node's tasks have their control groups, from the first agent until the home is down.

The folders are noted on the disk before anything is in them: taking the home down removes them,
also when the agent that made them was killed, or ran in another place than the one before.

Where an agent's tasks have their control groups: found, and made ready, once.

On version 1 that is below the group the agent runs in, per hierarchy. On version 2 a group that hands
controllers to groups below must hold no processes itself, so in this order: below our own group, if it
is the machine's root, which may; beside it, if its parent is an inner group that we may write (a slice
of systemd's, ours or root's); below our own after moving everything in it one level down, which only
works where it was delegated to us (a container, `systemd-run --user --scope -p Delegate=yes`).
Where none of these can be done there are no parents, and tasks do without.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import time
import zlib
from pathlib import Path

import msgspec

from shoal import statefiles
from shoal.cluster.local.home import NodeHome
from shoal.cluster.local.isolation.cgroups import CONTROLLERS, KILL, write

_log = logging.getLogger(__name__)

_NOTE = "cgroups.json"
_CONTROL_GROUP = "shoal-control"
_DYING_SECONDS = 2.0
_POLL_SECONDS = 0.02


def prepare(node: NodeHome) -> dict[str, str]:
    """The folders (by controller) for the groups of this node's tasks; made and noted."""
    found = prepare_parents(scope(node))
    note = node.path / _NOTE
    before = _noted(note)
    stale = {key: folder for key, folder in before.items() if folder not in found.values()}
    release_parents(stale)
    if found != before:
        with contextlib.suppress(OSError):  # a full disk: then they are found by their name alone
            statefiles.write(note, msgspec.json.encode(found))
    return found


def release(node: NodeHome) -> None:
    """Remove the folders, where no task's group is left in them. Idempotent."""
    note = node.path / _NOTE
    release_parents(_noted(note))
    note.unlink(missing_ok=True)


def scope(node: NodeHome) -> str:
    """A name for them that no other home on the machine has."""
    home = node.path.parent.parent
    return f"{zlib.crc32(str(home).encode()):08x}-{node.name}"


def _noted(note: Path) -> dict[str, str]:
    decode = functools.partial(msgspec.json.decode, type=dict[str, str])
    return statefiles.read(note, decode, _log.warning) or {}


def prepare_parents(scope: str, root: Path = Path("/")) -> dict[str, str]:
    """Make a parent for the groups of this scope's tasks (unique on the machine, such as a hash of home
    and node) per controller that can be had; idempotent. `root` is for tests."""
    mounts = _mounts(root)
    own = _own_groups(root, mounts)
    parents: dict[str, str] = {}
    for key in CONTROLLERS:
        if key in own:
            folder = own[key] / f"shoal-{scope}"
            with contextlib.suppress(OSError):  # not ours to make: the task does without
                folder.mkdir(exist_ok=True)
                (folder / "cgroup.procs").open("a").close()
                parents[key] = str(folder)
    if "" in own:
        parents |= _version_2(own[""], mounts[""], scope, hybrid=bool(parents))
    return parents


def release_parents(parents: dict[str, str]) -> None:
    """Remove the parents that `prepare` made, where no task's group is left in them."""
    deadline = time.monotonic() + _DYING_SECONDS
    for folder in map(Path, set(parents.values())):
        while not _removed(folder) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)


def _removed(folder: Path) -> bool:
    """Whether nothing more can be done: it is gone, or groups are left in it. A group whose last process
    is about to be reaped is in use for a moment longer."""
    try:
        folder.rmdir()
    except OSError as error:
        return error.errno != errno.EBUSY or any(each.is_dir() for each in folder.iterdir())
    return True


def _mounts(root: Path) -> dict[str, tuple[Path, str]]:
    """Where each version 1 controller, and `` for version 2, is mounted: the place, and which group of
    the hierarchy is seen there."""
    found: dict[str, tuple[Path, str]] = {}
    for line in _text(root / "proc/self/mountinfo").splitlines():
        fields, _, kinds = line.partition(" - ")
        group, place = fields.split()[3:5]
        kind, _, options = kinds.split(maxsplit=2)
        where = (root / place.lstrip("/"), group)
        if kind == "cgroup2":
            found.setdefault("", where)
        elif kind == "cgroup":
            for name in set(options.split(",")).intersection(CONTROLLERS):
                found.setdefault(name, where)
    return found


def _own_groups(root: Path, mounts: dict[str, tuple[Path, str]]) -> dict[str, Path]:
    """The folder of the group in which this process is, by controller."""
    found: dict[str, Path] = {}
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            if name in mounts:
                place, group = mounts[name]
                inside = path.removeprefix(group) if group != "/" else path
                found[name] = place / inside.lstrip("/")
    return {name: folder for name, folder in found.items() if folder.is_dir()}


def _version_2(own: Path, mount: tuple[Path, str], scope: str, *, hybrid: bool) -> dict[str, str]:
    place, _ = mount
    if hybrid and not _controllers(own):
        folder = own / f"shoal-{scope}"
        with contextlib.suppress(OSError):
            folder.mkdir(exist_ok=True)
            if (folder / "cgroup.kill").exists():
                return {KILL: str(folder)}
        return {}
    machine_root = own == place and not (own / "cgroup.type").exists()
    beside = [] if own == place or _processes(own.parent) else [own.parent]
    for base in [own] if machine_root else beside:
        found = _below(base, scope)
        if found:
            return found
    if not machine_root and _moved_down(own):
        return _below(own, scope)
    return {}


def _below(base: Path, scope: str) -> dict[str, str]:
    """A parent below this group, with all the controllers that can be handed down to it."""
    folder = base / f"shoal-{scope}"
    with contextlib.suppress(OSError):
        for name in _controllers(base):
            _hand_down(base, name)
        folder.mkdir(exist_ok=True)
        granted = [name for name in _controllers(folder) if _hand_down(folder, name)]
        (folder / "cgroup.procs").open("a").close()
        return dict.fromkeys(granted, str(folder))
    return {}


def _hand_down(group: Path, name: str) -> bool:
    """Let the groups below have the controller; True when they do."""
    if name in _text(group / "cgroup.subtree_control").split():
        return True
    try:
        write(str(group / "cgroup.subtree_control"), f"+{name}")
    except OSError:
        return False
    return True


def _moved_down(own: Path) -> bool:
    """Move every process of the group one level down; True when none is left in it."""
    below = own / _CONTROL_GROUP
    try:
        below.mkdir(exist_ok=True)
        for pid in _processes(own):
            with contextlib.suppress(ProcessLookupError):
                write(str(below / "cgroup.procs"), pid)
    except OSError:
        return False
    return not _processes(own)


def _controllers(group: Path) -> list[str]:
    return [name for name in _text(group / "cgroup.controllers").split() if name in CONTROLLERS]


def _processes(group: Path) -> list[str]:
    return _text(group / "cgroup.procs").split()


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
