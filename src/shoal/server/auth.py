"""From a connection to an actor.

| listener | caller | actor |
| --- | --- | --- |
| api | a process of the owner's uid (or root) that belongs to no task | the owner |
| any | a caller that shows the token of a job that exists and has not finished | that job |
| tcp | a caller that shows a user's token | that user, with its roles |

A job's token is not stored: it names its job and carries an HMAC-SHA256 under `keys/jobs.key`, so a
server that restarts accepts it, and it is worthless once the job has finished or is gone. Users' tokens:
`shoal.server.accounts`.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import os
import pwd
import secrets
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from shoal import faults, statefiles
from shoal.objects.errors import Forbidden, NotFound, Unauthenticated
from shoal.objects.job import Job
from shoal.server.peer import Peer
from shoal.store.base import Actor

_FINISHED = ("Succeeded", "Failed", "Cancelled")
_LOG = logging.getLogger("shoal.server")
_JOB_PREFIX = "shoal-job-"
_KEY_BYTES = 32


class Authenticator:
    """See the module. `find_user` gives the actor of a user's token, `find_job` reads a job as the
    system; both off the event loop."""

    def __init__(
        self,
        jobs: JobTokens,
        find_user: Callable[[str], Awaitable[Actor]],
        find_job: Callable[[str, str], Awaitable[Job]],
        owner_uid: int | None = None,
    ) -> None:
        self._jobs = jobs
        self._find_user = find_user
        self._find_job = find_job
        self._owner = os.geteuid() if owner_uid is None else owner_uid
        self._names: dict[int, str] = {}

    async def actor(self, state: Mapping[str, Any], authorization: str) -> Actor:
        """The actor of this request. `state` is what the connection left: its listener and its peer.

        Raises:
            Unauthenticated: there is no credential, or it is not valid.
            Forbidden: the caller may not use this listener.
        """
        token = _bearer(authorization)
        if is_job_token(token):
            return await self._job(token)
        listener, peer = state.get("listener", "tcp"), state.get("peer")
        if listener == "api" and isinstance(peer, Peer):
            return self._owner_at(peer)
        if listener == "tcp":
            if not token:
                raise Unauthenticated(
                    "this address needs a token", hint="shoal login ADDRESS --token-file FILE"
                )
            return await self._find_user(token)
        raise Unauthenticated(
            "this socket is for tasks, which show the token of their job",
            hint="the token is in the file that SHOAL_TOKEN_FILE names",
        )

    def _owner_at(self, peer: Peer) -> Actor:
        if peer.uid not in (self._owner, 0):
            raise Forbidden(
                f"this server belongs to {self._name(self._owner)}, not to {self._name(peer.uid)}",
                hint="use a server of your own, or a token over TCP",
            )
        if peer.evidence:
            raise Forbidden(
                f"{peer.evidence}, and a task may not drive the server that runs it",
                hint="inside a task use SHOAL_API with the token in SHOAL_TOKEN_FILE",
            )
        return Actor(self._name(peer.uid), ("admin",))

    async def task(self, authorization: str) -> tuple[Job, int]:
        """The job that a task speaks for as it is now, and the attempt that the task was started in.

        Raises:
            Unauthenticated: it shows no token of a job that lives and has not finished.
        """
        token = _bearer(authorization)
        if not is_job_token(token):
            raise Unauthenticated(
                "only a job's own tasks are answered here, which show the token of their job",
                hint="the token is in the file that SHOAL_TOKEN_FILE names",
            )
        return await self._claimed(token)

    async def _job(self, token: str) -> Actor:
        job, _ = await self._claimed(token)
        return job_actor(job)

    async def _claimed(self, token: str) -> tuple[Job, int]:
        namespace, name, uid, attempt = self._jobs.job_of(token)
        try:
            job = await self._find_job(namespace, name)
        except NotFound:
            job = None
        if job is None or job.metadata.uid != uid:
            raise Unauthenticated(f"job {name}, which this token was for, is gone")
        if job.status.phase in _FINISHED:
            raise Unauthenticated(f"job {name}, which this token was for, has finished")
        return job, attempt

    def _name(self, uid: int) -> str:
        known = self._names.get(uid)
        if known is None:
            try:
                known = pwd.getpwuid(uid).pw_name
            except KeyError:
                known = f"uid-{uid}"
            self._names[uid] = known
        return known


def job_actor(job: Job) -> Actor:
    """The actor that shows the token of this job."""
    meta = job.metadata
    return Actor(f"job:{meta.namespace}/{meta.name}", ("job",), (meta.namespace, meta.name, meta.uid))


def _bearer(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


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
