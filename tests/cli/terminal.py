"""A program on a terminal of its own: what a person at a keyboard would see and press."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from typing import Self

__all__ = ["Terminal"]


def _at_a_terminal() -> None:
    """In the child: the terminal is its own, and Ctrl-C is heard though whoever started the tests (in
    the background of a script, say) ignores it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """Runs the words with standard input, output and errors on a pseudo-terminal."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str], cwd: str | None = None) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.process = subprocess.Popen(
            words,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
            preexec_fn=_at_a_terminal,
        )
        os.close(slave)
        self.shown = ""

    def until(self, pattern: str, seconds: float = 30.0) -> str:
        """Wait until the pattern is on the screen; everything shown so far.

        Raises:
            AssertionError: it does not come.
        """
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.shown):
            assert self._read(deadline), f"no {pattern!r} in:\n{self.shown}"
        return self.shown

    def press(self, keys: bytes) -> None:
        """Type; b"\\x03" is Ctrl-C."""
        os.write(self._master, keys)

    def leave(self, seconds: float = 30.0) -> int:
        """Wait for its end; the exit code."""
        deadline = time.monotonic() + seconds
        while self._read(deadline):
            pass
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the last holder of the other side has gone
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)
