"""A home of the benchmark's own in a temporary folder, gone afterwards."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.processes import SHOAL

__all__ = ["down", "fresh_home", "server_pid"]


@contextmanager
def fresh_home() -> Iterator[dict[str, str]]:
    """The environment of commands in a new home; the home is taken down and removed at the end."""
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        environment = {"SHOAL_HOME": f"{folder}/home"}
        try:
            yield environment
        finally:
            down(environment)


def down(environment: dict[str, str]) -> None:
    """Take server and agents down."""
    subprocess.run(
        [SHOAL, "down", "-y"], env={**os.environ, **environment}, capture_output=True, check=False
    )


def server_pid(environment: dict[str, str]) -> int:
    """The server's process."""
    document = Path(environment["SHOAL_HOME"], "server.json").read_bytes()
    return int(msgspec.json.decode(document)["pid"])
