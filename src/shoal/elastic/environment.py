"""Where a script runs: on the platform, with a coordinator that somebody started, under torchrun, alone.

| who started it | what tells |
| --- | --- |
| `shoal run --min ...` | `SHOAL_RUNTIME=elastic`, `SHOAL_API`, `SHOAL_TOKEN_FILE` |
| anybody, with a coordinator | `SHOAL_ELASTIC`: folder of its `coordinator.json`; `SHOAL_ELASTIC_NAME` |
| torchrun | `RANK`, `WORLD_SIZE` above 1, `MASTER_ADDR`, `MASTER_PORT` |
| nobody | none of these |
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.elastic.link import Contact
from shoal.elastic.unixhttp import UnixConnection, path_of

__all__ = ["Place", "find"]

_API_SECONDS = 2.0


@dataclass(frozen=True)
class Place:
    """`kind`: who started this process. `name`: who it is among its peers; `host`: where they reach it.
    `contact` looks the coordinator up; None while nobody knows it. `file`: where that is written, if it
    is."""

    kind: str
    name: str
    host: str
    contact: Callable[[], Contact | None]
    file: str | None = None


def find(environment: Mapping[str, str]) -> Place | None:
    """Where this process is; None when it is alone, or under torchrun (see `torchrun`)."""
    if folder := environment.get("SHOAL_ELASTIC"):
        name = environment.get("SHOAL_ELASTIC_NAME") or f"{socket.gethostname()}-{os.getpid()}"
        host = environment.get("SHOAL_HOST", "127.0.0.1")
        file = Path(folder) / "coordinator.json"
        return Place("folder", name, host, lambda: _from_file(file), str(file))
    if _on_platform(environment):
        name = f"{environment['SHOAL_ROLE']}-{environment['SHOAL_INDEX']}"
        api, token = environment["SHOAL_API"], environment["SHOAL_TOKEN_FILE"]
        host = environment.get("SHOAL_HOST", "127.0.0.1")
        return Place("platform", name, host, lambda: _from_api(api, Path(token)))
    return None


def _on_platform(environment: Mapping[str, str]) -> bool:
    needed = {"SHOAL_API", "SHOAL_TOKEN_FILE", "SHOAL_ROLE", "SHOAL_INDEX"}
    return environment.get("SHOAL_RUNTIME") == "elastic" and needed <= environment.keys()


def _from_file(path: Path) -> Contact | None:
    try:
        return _contact(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError):
        return None


def _from_api(api: str, token: Path) -> Contact | None:
    connection = UnixConnection(path_of(api), _API_SECONDS)
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


def _contact(told: dict[str, Any]) -> Contact:
    if ended := told.get("ended"):
        return Contact(ended=str(ended["reason"]), failed=bool(ended["failed"]))
    return Contact(str(told["address"]), str(told["key"]))
