"""Where a script runs: on the platform, with a coordinator that was started by hand, under torchrun,
alone.

| started by | variables |
| --- | --- |
| `shoal run --min ...` | `SHOAL_RUNTIME=elastic`, `SHOAL_API`, `SHOAL_TOKEN_FILE` |
| anybody, with a coordinator | `SHOAL_ELASTIC`: folder of its `coordinator.json`; `SHOAL_ELASTIC_NAME` |
| torchrun | `RANK`, `WORLD_SIZE` above 1, `MASTER_ADDR`, `MASTER_PORT` |
| hand | none of these |

`SHOAL_HOST` is the address at which other machines reach this one (default: they cannot).
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from shoal.elastic import wire
from shoal.elastic.errors import ElasticError
from shoal.elastic.link import Contact
from shoal.task_api import open_connection

__all__ = ["Place", "find"]

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
    """Where this process is; None when it is alone, or under torchrun (see `embedded`).

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
