"""The members of one attempt, in order, with their endpoints."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterable
from functools import cached_property

from shoal.objects.job import Job, Role
from shoal.objects.task import Endpoint

RENDEZVOUS_PORT = "rendezvous"
"""The port that every endpoint has, whatever its role asks for: contracts listen there."""

_LEADERS = ("master", "chief", "launcher")
"""Roles whose tasks come first by convention, wherever the job lists them."""


class Group:
    """The members that are present, in the order of their ranks."""

    def __init__(
        self,
        job: Job,
        attempt: int,
        endpoints: Iterable[Endpoint],
        others: Iterable[Endpoint] = (),
    ) -> None:
        """`others` are listed beside the members: they have no rank and do not count."""
        self.job = job
        self.attempt = attempt
        self.others = tuple(others)
        order = {name: place for place, name in enumerate(_role_names(job))}
        # by role and index: a task that starts again may be known from before, the last said holds
        present = {(each.role, each.index): each for each in endpoints if each.role in order}
        self.members = tuple(
            sorted(present.values(), key=lambda member: (order[member.role], member.index))
        )
        """Endpoints; the place of each is its rank."""

    @property
    def size(self) -> int:
        """How many members there are."""
        return len(self.members)

    @property
    def first(self) -> Endpoint:
        """The member of rank 0."""
        return self.members[0]

    @property
    def run_id(self) -> str:
        """Identifies this attempt of the job."""
        return f"{self.job.metadata.uid}-{self.attempt}"

    def rank(self, member: Endpoint) -> int:
        """The member's place among all."""
        return self._ranks[member.role, member.index]

    def member(self, role: str, index: int) -> Endpoint:
        """The member at that index of that role."""
        return self.members[self._ranks[role, index]]

    @cached_property
    def by_role(self) -> dict[str, tuple[Endpoint, ...]]:
        """The members of each role that has any, in the order of their ranks."""
        roles: dict[str, list[Endpoint]] = {}
        for member in self.members:
            roles.setdefault(member.role, []).append(member)
        return {name: tuple(members) for name, members in roles.items()}

    def role(self, name: str) -> Role:
        """The role of that name, as people wrote it."""
        return next(role for role in self.job.spec.roles if role.name == name)

    @cached_property
    def loopback(self) -> str:
        """The loopback interface if that is all that joins the members, else empty."""
        if not all(_is_loopback(member.host) for member in self.members):
            return ""
        return "lo0" if sys.platform == "darwin" else "lo"

    @cached_property
    def _ranks(self) -> dict[tuple[str, int], int]:
        return {(member.role, member.index): rank for rank, member in enumerate(self.members)}


def address(member: Endpoint, port: str = RENDEZVOUS_PORT) -> str:
    """`host:port` of a member."""
    host = f"[{member.host}]" if ":" in member.host else member.host
    return f"{host}:{member.ports[port]}"


def _role_names(job: Job) -> list[str]:
    names = [role.name for role in job.spec.roles]
    return sorted(names, key=lambda name: name not in _LEADERS)  # stable: the rest as listed


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
