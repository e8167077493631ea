"""How a process finds the job that it was started for, and gets its sidecar.

| started by | variables |
| --- | --- |
| `shoal run --min ...` | `SHOAL_RUNTIME=elastic`, `SHOAL_API`, `SHOAL_TOKEN_FILE` |
| a user, with a coordinator | `SHOAL_ELASTIC`: folder of its `coordinator.json`; `SHOAL_ELASTIC_NAME` |
| torchrun | `RANK`, `WORLD_SIZE` above 1, `MASTER_ADDR`, `MASTER_PORT` |
| hand | none of these |

`SHOAL_HOST` is the address at which other machines reach this one (default: they cannot). Under torchrun
rank 0 starts the coordinator, and publishes its address in torchrun's own store.
"""

from __future__ import annotations

import atexit
import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import torch.distributed as dist

from shoal.elastic import wire
from shoal.elastic.detect.guardian import Guardian
from shoal.elastic.errors import ElasticError, Stopped
from shoal.elastic.link import Contact
from shoal.elastic.membership import Membership
from shoal.elastic.presence import say
from shoal.task_api import open_connection

__all__ = ["Place", "checkpoints_in", "find", "guard", "place", "under_torchrun"]

_API_SECONDS = 2.0
_ANYWHERE = ("0.0.0.0", "::")


@dataclass(frozen=True)
class Place:
    """`kind`: what started this process. `name`: its name among its peers; `host`: where they reach it.
    `contact` looks the coordinator up; None while it is not known. `file`: where that is written, if it
    is."""

    kind: str
    name: str
    host: str
    contact: Callable[[], Contact | None]
    file: str | None = None


def find(environment: Mapping[str, str]) -> Place | None:
    """Where this process is; None when it is alone, or under torchrun (see `under_torchrun`).

    Raises:
        ElasticError: `SHOAL_HOST` is no address of this machine.
    """
    if folder := environment.get("SHOAL_ELASTIC"):
        name = environment.get("SHOAL_ELASTIC_NAME") or f"{socket.gethostname()}-{os.getpid()}"
        host = _own_host(environment)
        file = Path(folder) / "coordinator.json"
        return Place("folder", name, host, lambda: _from_file(file), str(file))
    if _on_platform(environment):
        name = f"{environment['SHOAL_ROLE']}-{environment['SHOAL_INDEX']}"
        api, token = environment["SHOAL_API"], Path(environment["SHOAL_TOKEN_FILE"])
        pinned = environment.get("SHOAL_API_FINGERPRINT", "")
        host = _own_host(environment)
        return Place("platform", name, host, lambda: _from_api(api, token, pinned))
    return None


def _on_platform(environment: Mapping[str, str]) -> bool:
    needed = {"SHOAL_API", "SHOAL_TOKEN_FILE", "SHOAL_ROLE", "SHOAL_INDEX"}
    return environment.get("SHOAL_RUNTIME") == "elastic" and needed <= environment.keys()


def _own_host(environment: Mapping[str, str]) -> str:
    host = environment.get("SHOAL_HOST") or "127.0.0.1"
    wrong = "no worker can connect to that" if host in _ANYWHERE else _unbindable(host)
    if wrong is not None:
        raise ElasticError(
            f"this worker cannot be reached at {host}: {wrong}; set SHOAL_HOST to an address of this "
            "machine that the other workers reach"
        )
    return host


def _unbindable(host: str) -> str | None:
    """Why nothing can listen there; None: it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
    except OSError as error:
        return error.strerror or str(error)
    return None


def _from_file(path: Path) -> Contact | None:
    try:
        return _contact(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError):
        return None


def _from_api(api: str, token: Path, fingerprint: str) -> Contact | None:
    connection = open_connection(api, _API_SECONDS, fingerprint)
    try:
        headers = {"Authorization": f"Bearer {token.read_text().strip()}"}
        connection.request("GET", "/api/v1/elastic", headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            return None
        return _contact(json.loads(json.loads(body)["record"] or "{}"))
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        return None
    finally:
        connection.close()


def _contact(told: object) -> Contact:
    """
    Raises:
        KeyError, ValueError: it says nothing of the kind, or no more than half of it yet.
    """
    if not isinstance(told, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 - of data, not of a caller
    said = cast("dict[str, Any]", told)
    if ended := said.get("ended"):
        return Contact(ended=str(ended["reason"]), failed=bool(ended["failed"]))
    address = str(said["address"])
    wire.address_of(address)
    return Contact(address, str(said["key"]))


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


_PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.05


def place() -> Place | None:
    """Where this process is to take part; None: it was started by hand, and is alone.

    Raises:
        ElasticError: the surroundings contradict each other.
    """
    return find(os.environ) or under_torchrun(os.environ)


def checkpoints_in(given: str | Path | None) -> Path | None:
    """The folder for checkpoints: of a task of the platform one in `$SHOAL_OUTPUT`, unless the script
    gives an absolute one; elsewhere what the script gives, if anything."""
    output = os.environ.get("SHOAL_OUTPUT") if os.environ.get("SHOAL_RUNTIME") == "elastic" else None
    if output:
        return Path(output) / (given or "checkpoints")
    return Path(given) if given is not None else None


def guard(found: Place, membership: Membership, max_stall_seconds: float) -> tuple[Guardian, str]:
    """Start this process's sidecar, once the coordinator has shown up; and the job's key.

    Raises:
        ElasticError: it has not shown up.
        Stopped: the job has failed already.
        SystemExit: there is nothing more to do.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (contact := found.contact()) is None:
        if time.monotonic() > deadline:
            raise ElasticError("the job's coordinator has not shown up for a minute: see its log")
        time.sleep(_LOOK_SECONDS)
    if contact.ended and contact.failed:
        raise Stopped(contact.ended)
    if contact.ended:
        say(f"nothing to do: {contact.ended}")
        raise SystemExit(0)

    def find() -> str | None:
        now = found.contact()
        return now.address or None if now is not None else None

    guardian = Guardian(
        name=membership.name, key=contact.key, find=find, max_stall_seconds=max_stall_seconds,
        address_file=found.file,
    )  # fmt: skip
    guardian.training(False)
    membership.on_joined = guardian.joined
    membership.max_stall_seconds = max_stall_seconds
    return guardian, contact.key
