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
from typing import Any, NoReturn

import torch.distributed as dist

__all__ = ["free_port", "leave", "run"]

_SECONDS = 100
_ROOT = Path(__file__).parents[3]


def leave(found: dict[str, Any]) -> NoReturn:
    """In a rank: print what was found, and end when all ranks have come here.

    The process ends without taking anything down: a group's last reference may be dropped by a thread of
    its own (torch 2.15), which aborts the process in one of twenty ends.
    """
    print(json.dumps(found), flush=True)
    dist.barrier()
    os._exit(0)


def run(
    module: str,
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
                [*prefix, sys.executable, "-m", module, task],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=_ROOT,
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
