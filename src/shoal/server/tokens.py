"""Tokens of jobs, for their own tasks. Users' tokens: `shoal.server.accounts`.

A job's token is not stored: it names its job and carries an HMAC-SHA256 under `keys/jobs.key`, so a
server that restarts accepts it, and it is worthless once the job has finished or is gone.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import secrets
from pathlib import Path
from typing import NamedTuple

import msgspec

from shoal import faults, statefiles
from shoal.objects.errors import Unauthenticated
from shoal.objects.job import Job

__all__ = ["JobClaim", "JobTokens", "is_job_token"]

_LOG = logging.getLogger("shoal.server")
_JOB_PREFIX = "shoal-job-"
_KEY_BYTES = 32


def is_job_token(token: str) -> bool:
    """Whether this is a job's token, valid or not, rather than a person's."""
    return token.startswith(_JOB_PREFIX)


class JobClaim(NamedTuple):
    """What a job's token says: which job, and in which attempt the task was started that has it."""

    namespace: str
    name: str
    uid: str
    attempt: int = 0


class JobTokens:
    """Makes and checks jobs' tokens. Thread-safe."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def of(cls, keys: Path) -> JobTokens:
        """With the key in `keys/`, made on first use, and again when it and its copy are damaged: then
        the tokens of running tasks are worthless. Only for the holder of the server's lock."""
        path, copy = keys / "jobs.key", keys / "jobs.copy.key"
        key = statefiles.read(path, _key, _LOG.warning, copy=copy)
        if key is None:
            key = secrets.token_bytes(_KEY_BYTES)
            statefiles.write(path, key, copy=copy)
            faults.point("server.key.written")
        elif not copy.exists():
            statefiles.write(copy, key)
        return cls(key)

    def mint(self, job: Job, attempt: int = 0) -> str:
        """The token that lets tasks of this job's attempt, and of no other job, speak for themselves."""
        meta = job.metadata
        claim = msgspec.json.encode([meta.namespace, meta.name, meta.uid, attempt])
        return f"{_JOB_PREFIX}{_text(claim)}.{_text(self._seal(claim))}"

    def job_of(self, token: str) -> JobClaim:
        """What a token claims.

        Raises:
            Unauthenticated: it was not made here.
        """
        claim, _, seal = token.removeprefix(_JOB_PREFIX).partition(".")
        try:
            said = _bytes(claim)
            if hmac.compare_digest(self._seal(said), _bytes(seal)):
                return msgspec.json.decode(said, type=JobClaim)
        except (binascii.Error, ValueError):
            pass  # neither text nor seal are ours: said below
        raise Unauthenticated("the token is not one that this server gave to a job")

    def _seal(self, claim: bytes) -> bytes:
        return hmac.digest(self._key, claim, "sha256")


def _key(data: bytes) -> bytes:
    """Raises:
    ValueError: this is not a key.
    """
    if len(data) != _KEY_BYTES:
        raise ValueError(f"{len(data)} bytes are not a key of {_KEY_BYTES}")
    return data


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
