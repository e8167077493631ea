"""Real processes with a gloo group, for tests: started, awaited, and never left over."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["free_port", "run"]

_SECONDS = 100


def run(
    script: Path,
    task: str,
    address: str,
    port: int,
    prefixes: Sequence[Sequence[str]],
    **environment: str,
) -> list[dict[str, Any]]:
    """One process for each prefix; what each printed. None outlives the call."""
    ranks: list[subprocess.Popen[str]] = []
    with contextlib.ExitStack() as undo:
        for rank, prefix in enumerate(prefixes):
            process = subprocess.Popen(
                [*prefix, sys.executable, "-W", "ignore::FutureWarning", str(script), task],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={
                    **os.environ,
                    "RANK": str(rank),
                    "WORLD_SIZE": str(len(prefixes)),
                    "MASTER_ADDR": address,
                    "MASTER_PORT": str(port),
                    **environment,
                },
            )
            undo.callback(process.wait, 10)
            undo.callback(process.kill)
            ranks.append(process)
        ended = [process.communicate(timeout=_SECONDS) for process in ranks]
    for process, (_, errors) in zip(ranks, ended, strict=True):
        assert process.returncode == 0, errors[-3000:]
    return [json.loads(output.strip().splitlines()[-1]) for output, _ in ended]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
