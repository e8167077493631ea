"""`shoal exec`: a command beside a running task, in the task's isolation."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from shoal.cli.failures import Usage
from shoal.cli.options import names_of, verb, whole
from shoal.cli.settings import Settings, connect
from shoal.cli.targets import one
from shoal.objects.kinds import JOB

if TYPE_CHECKING:
    from shoal.client.session import RemoteSession

_PIECE_BYTES = 65536


@verb("exec")
@names_of("job", single=True)
@click.option("--role", default="", metavar="NAME", help="Which role, where there are several.")
@click.option("--rank", "index", type=whole(0), default=0, help="Which task; 0 by default.")
@click.option("--tty", "-t", is_flag=True, help="With a terminal, for shells and editors.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(
    settings: Settings, job: str, role: str, index: int, tty: bool, words: tuple[str, ...]
) -> int:
    """Run a command beside a task, in its isolation.

    \b
    shoal exec job/train -- nvidia-smi
    shoal exec job/train --rank 2 -t -- bash

    It sees the task's files, environment and processes. The exit code is the command's.
    """
    if not words:
        raise Usage("there is no command to run", hint=f"such as: shoal exec {job} -- ps aux")
    if tty and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Usage("-t needs a terminal here", hint="leave -t out where input or output is a pipe")
    target = one(job, settings, JOB)
    with connect(settings) as client:
        session = client.exec(target.namespace, target.name, words, role=role, index=index, tty=tty)
        try:
            with _raw_terminal(session) if tty else _plain():
                threading.Thread(target=_send_input, args=(session,), daemon=True).start()
                return _receive(session)
        finally:
            session.close()


def _receive(session: RemoteSession) -> int:
    while True:
        what, data = session.receive()
        if what == "exit":
            return int(data)
        stream = sys.stderr.buffer if what == "err" else sys.stdout.buffer
        stream.write(data)
        stream.flush()


def _send_input(session: RemoteSession) -> None:
    """Ends with the input, or with the process: a read of a terminal cannot be called off."""
    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError):
        session.send(b"")
        return
    while True:
        try:
            data = os.read(descriptor, _PIECE_BYTES)
        except OSError:
            data = b""
        session.send(data)
        if not data:
            return


@contextmanager
def _plain() -> Generator[None, None, None]:
    yield


@contextmanager
def _raw_terminal(session: RemoteSession) -> Generator[None, None, None]:
    """Every key goes to the command, Ctrl-C included; its size is the terminal's."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def resize(*_: object) -> None:
        size = os.get_terminal_size(descriptor)
        session.resize(size.lines, size.columns)

    old = signal.signal(signal.SIGWINCH, resize)
    tty.setraw(descriptor, termios.TCSADRAIN)  # keeps what has been typed already
    try:
        resize()
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, old)
