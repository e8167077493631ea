"""The record kept by the platform: requests to one endpoint, with a token for this job alone.

One connection (`shoal.task_api`), which is opened anew when it breaks.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from shoal import faults
from shoal.elastic.coordinator.records import Kept, Refused, Unavailable
from shoal.task_api import open_connection

__all__ = ["EndpointRecords"]

_PATH = "/api/v1/elastic"
_TIMEOUT_SECONDS = 5.0


class EndpointRecords:
    """See `records.Records`. The token is read anew for each connection: the platform may renew it."""

    poll_seconds = 0.5

    def __init__(self, api: str, token_file: Path, fingerprint: str = "") -> None:
        """`api` is the platform's socket or address; `fingerprint` pins its certificate."""
        self._api = api
        self._token_file = token_file
        self._fingerprint = fingerprint
        self._connection: http.client.HTTPConnection | None = None
        self._token = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> EndpointRecords:
        """From `SHOAL_API`, `SHOAL_API_FINGERPRINT` and `SHOAL_TOKEN_FILE`.

        Raises:
            ValueError: one of them is not set.
        """
        missing = [name for name in ("SHOAL_API", "SHOAL_TOKEN_FILE") if not environment.get(name)]
        if missing:
            raise ValueError(
                f"--api needs {' and '.join(missing)}, which the platform sets for its tasks"
            )
        fingerprint = environment.get("SHOAL_API_FINGERPRINT", "")
        return cls(environment["SHOAL_API"], Path(environment["SHOAL_TOKEN_FILE"]), fingerprint)

    def load(self) -> Kept:
        """See `Records.load`."""
        answer = self._ask("GET", _PATH, None)
        record = answer.get("record")
        return Kept(
            str(answer["version"]),
            str(record).encode() if record is not None else None,
            answer.get("target"),
            answer.get("minimum"),
            answer.get("maximum"),
        )

    def save(self, version: str, data: bytes) -> str:
        """See `Records.save`."""
        answer = self._ask("PUT", _PATH, {"version": version, "record": data.decode()})
        faults.point("coordinator.record.saved")
        return str(answer["version"])

    def report(self, report: dict[str, Any]) -> None:
        """See `Records.report`."""
        self._ask("POST", f"{_PATH}/report", report)

    def grant(self, size: int) -> None:
        """See `Records.grant`."""
        self._ask("POST", f"{_PATH}/resize", {"replicas": size})

    def close(self) -> None:
        """See `Records.close`."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        try:
            connection = self._connected()
            headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
            text = json.dumps(body) if body is not None else None
            connection.request(method, path, text, headers)
            response = connection.getresponse()
            status, content = response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unavailable(f"{self._api}: {error or type(error).__name__}") from error
        if status in (401, 403, 404, 409, 410):
            self.close()
            raise Refused(f"{method} {path}: the platform answers {status}: {_first_words(content)}")
        if status not in (200, 201, 202, 204):
            self.close()
            raise Unavailable(f"{method} {path}: the platform answers {status}: {_first_words(content)}")
        if not content:
            return {}
        try:
            decoded: object = json.loads(content)
        except ValueError as error:
            raise Unavailable(f"{method} {path}: the answer is no JSON") from error
        return cast("dict[str, Any]", decoded) if isinstance(decoded, dict) else {}

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            self._token = self._token_file.read_text().strip()
            self._connection = open_connection(self._api, _TIMEOUT_SECONDS, self._fingerprint)
        return self._connection


def _first_words(content: bytes) -> str:
    return content[:300].decode(errors="replace")
