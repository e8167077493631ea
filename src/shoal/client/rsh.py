"""mpirun's remote shell: runs a command beside the task that a host's name stands for.

    python -m shoal.client.rsh HOST COMMAND...

HOST is `ROLE-INDEX` of the calling task's job (`SHOAL_NAMESPACE`, `SHOAL_JOB`); the platform is
where `SHOAL_API` says, under the token in `SHOAL_TOKEN_FILE`. As ssh does, it joins the words and gives
them to a shell. A launcher may be up before its hosts are, so it asks again until the task runs, for
`SHOAL_RSH_SECONDS` (120). The exit code is the command's; 255 when there is none.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence

from shoal.client.client import Client
from shoal.client.session import RemoteSession
from shoal.objects.errors import NotFound, ShoalError, Unavailable

_FAILED = 255
_PAUSE_SECONDS = 0.1


def main(words: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Run it; returns the exit code."""
    words = sys.argv[1:] if words is None else words
    host = words[0] if words else ""
    role, _, index = host.rpartition("-")
    if len(words) < 2 or not role or not index.isdecimal():
        return _complain("call it as: rsh ROLE-INDEX COMMAND...")
    missing = [
        name for name in ("SHOAL_API", "SHOAL_NAMESPACE", "SHOAL_JOB") if not environment.get(name)
    ]
    if missing:
        return _complain(f"{missing[0]} is not set: this works in a task of a job only")
    give_up = time.monotonic() + float(environment.get("SHOAL_RSH_SECONDS", "120"))
    while True:
        run = _Run(environment["SHOAL_NAMESPACE"], environment["SHOAL_JOB"], role, int(index))
        try:
            return run.command(" ".join(words[1:]))
        except ShoalError as error:
            not_yet = isinstance(error, NotFound | Unavailable) and not run.begun
            if not not_yet or time.monotonic() > give_up:
                return _complain(f"{host}: {error.message}")
        time.sleep(_PAUSE_SECONDS)


class _Run:
    """One try. `begun`: the command may have run, so there must not be another."""

    def __init__(self, namespace: str, job: str, role: str, index: int) -> None:
        self.begun = False
        self._target = (namespace, job)
        self._role = role
        self._index = index

    def command(self, line: str) -> int:
        with Client.connect() as client:
            session = client.exec(
                *self._target, ("/bin/sh", "-c", line), role=self._role, index=self._index
            )
            try:
                session.send(b"")
                while True:
                    what, data = self._receive(session)
                    if what == "exit":
                        return int(data)
                    os.write(2 if what == "err" else 1, data)
            finally:
                session.close()

    def _receive(self, session: RemoteSession) -> tuple[str, bytes]:
        try:
            return session.receive()
        except Unavailable:
            self.begun = True
            raise


def _complain(message: str) -> int:
    os.write(2, f"shoal rsh: {message}\n".encode())
    return _FAILED


if __name__ == "__main__":
    sys.exit(main())
