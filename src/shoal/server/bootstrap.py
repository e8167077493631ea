"""What rendezvous adds to each task on a server: its environment and files, with the address of the API
and the token of its job."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shoal import rendezvous
from shoal.objects.job import Job
from shoal.objects.task import RENDEZVOUS_FOLDER, Endpoint, TaskBootstrap, TaskSpec
from shoal.server.tokens import JobTokens

__all__ = ["TOKEN_FILE", "Rendezvous"]

TOKEN_FILE = "token"
"""In the task's rendezvous folder, for its owner alone; `$SHOAL_TOKEN_FILE` is its path."""


class Rendezvous:
    """Bootstrap of tasks: the endpoints of their peers, and how to reach the platform as their job."""

    def __init__(self, tokens: JobTokens, api: str) -> None:
        self._tokens = tokens
        self._api = api

    def __call__(
        self, job: Job, attempt: int, specs: tuple[TaskSpec, ...], endpoints: tuple[Endpoint, ...]
    ) -> Mapping[str, TaskBootstrap]:
        """See `shoal.control.job.controller.Rendezvous`."""
        token = self._tokens.mint(job, attempt)
        own = {"SHOAL_API": self._api, "SHOAL_TOKEN_FILE": f"{RENDEZVOUS_FOLDER}/{TOKEN_FILE}"}
        told = rendezvous.render(job, attempt, specs, endpoints)
        return {
            name: msgspec.structs.replace(
                each, env={**each.env, **own}, files={**each.files, TOKEN_FILE: token}
            )
            for name, each in told.items()
        }
