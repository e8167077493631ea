"""The remote shell that `mpirun` calls inside a task: `python -m shoal.client.rsh HOST COMMAND...`.

HOST is a task of the same job, written `ROLE-INDEX` as the hostfile has it. The command runs beside
that task, in its isolation and under its limits, with the job's own token; its output and exit code
come back as if it ran here. Options before HOST, which an rsh may be given, are left out.
"""

from __future__ import annotations

import os
import sys
import threading

from shoal.client.client import Client
from shoal.client.session import RemoteSession
from shoal.objects.errors import ShoalError

__all__ = ["main"]

_USAGE = "usage: python -m shoal.client.rsh ROLE-INDEX COMMAND..."
_PIECE_BYTES = 65536
_NO_CONTACT = 255
"""What ssh exits with when the other side cannot be reached."""


def main(arguments: list[str]) -> int:
    """Run the command there; its exit code, or 255 where it could not be run."""
    words = list(arguments)
    while words and words[0].startswith("-"):
        words.pop(0)
    role, _, index = words[0].rpartition("-") if words else ("", "", "")
    if not role or not index.isdecimal() or len(words) < 2:
        _say(_USAGE)
        return _NO_CONTACT
    try:
        with Client.connect() as client:
            return _run(client, role, int(index), " ".join(words[1:]))
    except (ShoalError, OSError) as error:
        _say(f"{words[0]}: {error}")
        return _NO_CONTACT


def _run(client: Client, role: str, index: int, line: str) -> int:
    namespace, job = os.environ.get("SHOAL_NAMESPACE", ""), os.environ.get("SHOAL_JOB", "")
    # as rsh and ssh do: the words are a line for the other side's shell
    session = client.exec(namespace, job, ("/bin/sh", "-c", line), role=role, index=index)
    threading.Thread(target=_feed, args=(session,), daemon=True).start()
    try:
        while True:
            what, data = session.receive()
            if what == "exit":
                return int(data)
            stream = sys.stdout if what == "out" else sys.stderr
            stream.buffer.write(data)
            stream.flush()
    finally:
        session.close()


def _feed(session: RemoteSession) -> None:
    while True:
        try:
            data = os.read(0, _PIECE_BYTES)
        except OSError:
            data = b""
        session.send(data)
        if not data:
            return


def _say(text: str) -> None:
    print(f"rsh: {text}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
