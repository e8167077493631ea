"""Where everything of one Shoal on this machine lives: `$SHOAL_HOME`, by default `~/.shoal`.

    store.db history.db           the server's databases
    server.json                   the server that is up: pid, start, version, socket
    api.sock                      its socket for the owner
    tasks/api.sock                its socket for tasks with a token; the folder is mounted into tasks, so
                                  that they see the new socket of a server that restarts
    keys/                         secrets
    nodes.json                    the logical nodes
    settings.json                 what holds for the cluster, such as the levels of its topology
    run/                          locks; `down` while the home is to stay down
    log/                          what server and agents say
    nodes/NODE/                   an agent's: agent.sock, ledger.db, tasks/, work/, trash/,
                                  quarantine/, cgroups.json
    logs/ output/ sandboxes/      by namespace and job uid

Only the owner can enter. Standard library only, for the command line pays for it on every verb.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import socket
import stat
import time
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

_SOCKET_PATH_BYTES = 107
_RETRY_SECONDS = 0.005
_ATTEMPTS = 4
_LOOK_SECONDS = 0.001
_MOST_HOMES = 128
"""Each costs every task's start a mount."""


class HomeError(OSError):
    """The folder cannot be used as a home; the message says why and what to do."""


class Home:
    """The paths of one home. Knows where things are, not what is in them."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(os.path.abspath(path))  # noqa: PTH100 (resolve() would follow a link away)
        self.store_db = self.path / "store.db"
        self.history_db = self.path / "history.db"
        self.server_json = self.path / "server.json"
        self.api_socket = self.path / "api.sock"
        self.tasks_socket = self.path / "tasks" / "api.sock"
        self.keys = self.path / "keys"
        self.nodes_json = self.path / "nodes.json"
        self.settings_json = self.path / "settings.json"
        self.decisions = self.path / "decisions"
        self.run = self.path / "run"
        self.down = self.run / "down"
        """There while nothing is to be started again."""
        self.log = self.path / "log"
        self.nodes = self.path / "nodes"
        self.logs = self.path / "logs"
        self.output = self.path / "output"
        self.sandboxes = self.path / "sandboxes"

    @classmethod
    def default(cls) -> Home:
        """The home that the environment names."""
        return cls(os.environ.get("SHOAL_HOME") or Path.home() / ".shoal")

    def create(self) -> Home:
        """Make the folders, for the owner alone; idempotent.

        Raises:
            HomeError: they cannot be made, or belong to another user.
        """
        try:
            for folder in (
                self.path, self.keys, self.run, self.log, self.nodes, self.logs, self.output,
                self.sandboxes, self.tasks_socket.parent,
            ):  # fmt: skip
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.path.stat()
            if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != 0o700:
                self.path.chmod(0o700)
        except OSError as error:
            raise HomeError(
                f"{self.path} cannot be used as Shoal's home: {error.strerror or error}; "
                "set SHOAL_HOME to a folder that you can write"
            ) from error
        if found.st_uid != os.geteuid():
            raise HomeError(
                f"{self.path} belongs to another user; set SHOAL_HOME to a folder of your own"
            )
        note_home(self.path)
        return self

    def node(self, name: str) -> NodeHome:
        """What belongs to one logical node's agent."""
        return NodeHome(self.nodes / name, name)

    def component_lock(self, component: str) -> Lock:
        """Held by a component (`server`, `node-NAME`) for as long as it lives."""
        return Lock(self.run / f"{component}.lock")

    def component_log(self, component: str) -> Path:
        """Where a component's standard output and error go."""
        return self.log / f"{component}.log"


class NodeHome:
    """The paths of one node's agent."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self.socket = path / "agent.sock"
        self.ledger = path / "ledger.db"
        self.tasks = path / "tasks"
        """A folder per task that supervisor and agent share; see `taskfiles`."""
        self.work = path / "work"
        """A folder per task that the task may write: scratch, rendezvous."""
        self.trash = path / "trash"
        self.quarantine = path / "quarantine"
        """What could not be removed."""

    def create(self) -> NodeHome:
        """Make the folders; idempotent."""
        for folder in (self.path, self.tasks, self.work, self.trash, self.quarantine):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self


class Lock:
    """An exclusive lock on a file, which the kernel lets go of when its holder dies.

    The file names the holder's pid for processes that watch it; whether it lives, only the lock
    itself shows. Not shared between threads.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def try_acquire(self) -> bool:
        """Take the lock if it is free, and write our pid into it."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        for attempt in range(_ATTEMPTS):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt + 1 < _ATTEMPTS:  # it may be a process that only asks for the holder
                    time.sleep(_LOOK_SECONDS)
        else:
            os.close(descriptor)
            return False
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor
        return True

    def acquire(self, timeout_seconds: float) -> None:
        """Wait for the lock.

        Raises:
            TimeoutError: another process holds it for all that time.
        """
        deadline = time.monotonic() + timeout_seconds
        while not self.try_acquire():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.path} is held by process {self.holder()}")
            time.sleep(_RETRY_SECONDS)

    @property
    def is_ours(self) -> bool:
        """True while we hold it and its path still leads to it: not when the home was removed, or is
        another one by now."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self.path))  # noqa: PTH116
        except FileNotFoundError:
            return False
        except OSError:
            return True  # a disk that does not answer at this moment takes nothing away

    def release(self) -> None:
        """Let go; idempotent. The file stays, so that two never lock two files of one name."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def holder(self) -> int | None:
        """The pid of the holder, None when it is free; 0 when the pid is not written yet."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            # a shared lock, so that two that ask do not take each other for a holder
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(descriptor, 32, 0).strip()
            return int(text) if text.isdigit() else 0
        finally:
            os.close(descriptor)
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Presence:
    """Whether a component's home is still its own: its lock, and its sockets."""

    def __init__(self, lock: Lock, sockets: Sequence[Path]) -> None:
        self._lock = lock
        self._sockets = {path: path.stat().st_ino for path in sockets}

    @property
    def home_is_ours(self) -> bool:
        """See `Lock.is_ours`."""
        return self._lock.is_ours

    def lost(self) -> str:
        """Which of them is gone, or another's, in a sentence; empty when all are there."""
        if not self._lock.is_ours:
            return f"{self._lock.path} is gone or another's: the home was removed or replaced"
        for path, inode in self._sockets.items():
            try:
                if path.stat().st_ino == inode:
                    continue
            except FileNotFoundError:
                pass  # said below
            except OSError:
                continue
            return f"the socket {path} is gone or another's"
        return ""


@contextmanager
def socket_address(path: Path) -> Generator[str, None, None]:
    """An address for `bind` and `connect` that also serves where the path is longer than the 107
    bytes that a unix socket's address holds.

    Raises:
        HomeError: it is too long, and this system offers no way around it.
    """
    if len(os.fsencode(path)) <= _SOCKET_PATH_BYTES:
        yield str(path)
        return
    if not Path("/proc/self/fd").is_dir():
        raise HomeError(
            f"{path} is too long for a unix socket (over {_SOCKET_PATH_BYTES} bytes); "
            "set SHOAL_HOME to a shorter path"
        )
    folder = os.open(path.parent, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def connect(path: Path, timeout_seconds: float) -> socket.socket:
    """A connection to the unix socket at `path`.

    Raises:
        OSError: no process listens there.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_seconds)
        with socket_address(path) as address:
            connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


def listen(path: Path) -> socket.socket:
    """A socket that listens at `path`, for the owner alone, in place of whatever was there. Only for
    the holder of the component's lock.

    Raises:
        OSError: it cannot.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket_address(draft) as address:
            listener.bind(address)
        draft.chmod(0o600)
        listener.listen(128)
        draft.replace(path)  # so that a client that sees it can connect
    except BaseException:
        listener.close()
        raise
    return listener


def note_home(home: Path) -> None:
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


def known_homes() -> list[str]:
    """Paths of the homes that are there; of more than 128 those noted first."""
    found: dict[str, int] = {}
    for folder in note_folders():
        for link in Path(folder).iterdir():
            with contextlib.suppress(OSError):  # this note alone says nothing
                home = link.readlink()
                if (home / "run").is_dir():
                    found.setdefault(str(home), link.lstat().st_ctime_ns)
                elif not home.exists():
                    link.unlink(missing_ok=True)
    return sorted(sorted(found, key=lambda home: found[home])[:_MOST_HOMES])


def note_folders() -> list[str]:
    """The folders with the notes of this user's homes, which no task may see or change."""
    found: list[str] = []
    for folder in _folders():
        with contextlib.suppress(OSError):  # it is not there, or not for this user
            if folder.is_dir() and folder.stat().st_uid == os.geteuid() and os.access(folder, os.R_OK):
                found.append(str(folder))
    return found


def _folders() -> list[Path]:
    uid = os.geteuid()
    shared = Path("/var/tmp") / f"shoal-{uid}" / "homes"
    try:
        return [Path(pwd.getpwuid(uid).pw_dir) / ".local/state/shoal/homes", shared]
    except KeyError:
        return [shared]
