"""Under torchrun: rank 0 starts the coordinator, and publishes its address in torchrun's own store."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from shoal.elastic.environment import Place
from shoal.elastic.errors import ElasticError
from shoal.elastic.link import Contact

__all__ = ["under_torchrun"]

_START_SECONDS = 30.0
_STORE_SECONDS = 300.0


def under_torchrun(environment: Mapping[str, str]) -> Place | None:
    """Where this process is, as torchrun's variables say; None when there are none, or one process.

    Raises:
        ElasticError: they are no numbers, or the store they name does not answer.
    """
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= environment.keys():
        return None
    try:
        rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        port = int(environment["MASTER_PORT"])
    except ValueError as error:
        raise ElasticError(f"RANK, WORLD_SIZE and MASTER_PORT must be numbers: {error}") from error
    if size < 2:
        return None
    master = environment["MASTER_ADDR"]
    host = _own_address(master)
    run = "/".join(environment.get(f"TORCHELASTIC_{n}", "") for n in ("RUN_ID", "RESTART_COUNT"))
    agents = environment.get("TORCHELASTIC_USE_AGENT_STORE", "") == "True"
    try:
        store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]
            master, port, is_master=rank == 0 and not agents, wait_for_workers=False,
            timeout=timedelta(seconds=_STORE_SECONDS),
        )  # fmt: skip
        if rank == 0:
            store.set(f"shoal/{run}", json.dumps(_start(host, size)))
        told = json.loads(store.get(f"shoal/{run}"))
    except (RuntimeError, dist.DistError) as error:
        raise ElasticError(f"torchrun's store at {master}:{port} does not answer: {error}") from error
    contact = Contact(told["address"], told["key"])
    return Place("torchrun", f"rank-{rank}", host, lambda: contact)


def _own_address(master: str) -> str:
    """This machine's address on the way to the master."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((master, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def _start(host: str, size: int) -> dict[str, str]:
    """Start the coordinator beside this process: its address and key."""
    folder = Path(tempfile.mkdtemp(prefix="shoal-elastic-"))
    file = folder / "coordinator.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal.elastic.coordinator", "--minimum", "1", "--expect", str(size),
         "--bind", f"{host}:0", "--sqlite", str(folder / "record.db"), "--address-file", str(file)],
        stdin=subprocess.DEVNULL, start_new_session=True, env=dict(os.environ),
    )  # fmt: skip
    atexit.register(_end, process, folder)
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            told = json.loads(file.read_text())
            return {"address": str(told["address"]), "key": str(told["key"])}
        time.sleep(0.02)
    raise ElasticError("the coordinator did not start: see the lines above")


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10.0)
    shutil.rmtree(folder, ignore_errors=True)
