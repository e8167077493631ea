"""From a connection to an actor.

| listener | caller | actor |
| --- | --- | --- |
| api | a process of the owner's uid (or root) that belongs to no task | the owner |
| any | a caller that shows the token of a job that exists and has not finished | that job |
| tcp | a caller that shows a user's token | that user, with its roles |
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from shoal.objects.errors import Forbidden, NotFound, Unauthenticated
from shoal.objects.job import Job
from shoal.server.peer import Peer
from shoal.server.tokens import JobTokens, is_job_token
from shoal.store.base import Actor

__all__ = ["Authenticator"]

_FINISHED = ("Succeeded", "Failed", "Cancelled")


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
        meta = job.metadata
        name = f"job:{meta.namespace}/{meta.name}"
        return Actor(name, ("job",), (meta.namespace, meta.name, meta.uid))

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


def _bearer(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
