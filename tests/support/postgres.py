"""A PostgreSQL server of the test's own: a temporary folder, a unix socket, nothing on the network."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.support.require import require

__all__ = ["PostgresServer", "postgres_server"]

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_MEMORY_BYTES = 4 << 30
_UNPRIVILEGED = ("postgres", "nobody")


class PostgresServer:
    """A running server. `database` makes one more database and gives its URL."""

    def __init__(self, folder: Path, bin_folder: Path, prefix: list[str]) -> None:
        self._folder = folder
        self._bin = bin_folder
        self._prefix = prefix
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0

    def start(self) -> None:
        """Make the cluster if it is not there, start the server, and wait until it answers."""
        data = self._folder / "data"
        if not data.exists():
            self._call(
                "initdb", "-D", str(data), "-U", "shoal", "-A", "trust", "-E", "UTF8", "--no-sync"
            )
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._folder),
            "max_connections": "200",
            "fsync": "off",  # for speed: these servers never outlive a power cut
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix, str(self._bin / "postgres"), "-D", str(data), *options],
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )
        deadline = time.monotonic() + _START_SECONDS
        while self._try("pg_isready", "-q", "-h", str(self._folder)) != 0:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._folder / "log").read_text(errors="replace"))
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server: SIGINT ends its sessions first, SIGQUIT is a crash."""
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(_STOP_SECONDS)
        self._process = None

    def database(self) -> str:
        """A new, empty database."""
        self._databases += 1
        name = f"d{self._databases}"
        self._call("createdb", "-h", str(self._folder), "-U", "shoal", name)
        return self.url

    @property
    def url(self) -> str:
        """The database made last."""
        return f"postgresql://shoal@/d{self._databases}?host={self._folder}"

    def _call(self, program: str, *arguments: str) -> None:
        command = [*self._prefix, str(self._bin / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._folder)
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stderr}")

    def _try(self, program: str, *arguments: str) -> int:
        command = [*self._prefix, str(self._bin / program), *arguments]
        return subprocess.run(command, capture_output=True, check=False, cwd=self._folder).returncode


@contextmanager
def postgres_server() -> Generator[PostgresServer]:
    """Start a server, and end it afterwards; skips the test where there is none to start."""
    bin_folder = _find()
    if bin_folder is None:
        require("postgres", "no PostgreSQL server is installed (initdb, postgres)")
    folder = Path(tempfile.mkdtemp(prefix="shoal-pg-", dir=_in_memory()))  # short: a socket's path is
    server = PostgresServer(folder, bin_folder, _as_somebody_else(folder))
    try:
        server.start()
        yield server
    finally:
        server.stop(signal.SIGQUIT)  # nothing of it is kept, so nothing need be written
        shutil.rmtree(folder, ignore_errors=True)


def _in_memory() -> str | None:
    """A folder in memory where there is room: each database of a test is hundreds of files."""
    folder = "/dev/shm"
    there = os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > _MEMORY_BYTES
    return folder if there else None


def _find() -> Path | None:
    """The newest installed server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_release, reverse=True)
    on_path = shutil.which("initdb")
    if on_path:
        found.append(Path(on_path).resolve())
    return next((each.parent for each in found if (each.parent / "postgres").exists()), None)


def _release(initdb: Path) -> float:
    text = initdb.parent.parent.name
    return float(text) if text.replace(".", "", 1).isdecimal() else 0.0


def _as_somebody_else(folder: Path) -> list[str]:
    """PostgreSQL refuses to run as root: give the folder, and the process, to another user."""
    if os.geteuid() != 0:
        return []
    tool = shutil.which("setpriv")
    user = next((name for name in _UNPRIVILEGED if _exists(name)), None)
    if tool is None or user is None:
        require("postgres", "PostgreSQL does not run as root, and there is no setpriv or no other user")
    entry = pwd.getpwnam(user)
    os.chown(folder, entry.pw_uid, entry.pw_gid)
    return [tool, f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups", "--"]


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
