"""Order, ranks and addresses."""

from __future__ import annotations

import pytest

from shoal.objects.job import Role
from shoal.rendezvous.group import Group, address

from .conftest import UID, a_job, an_endpoint

ROLES = (Role(name="worker", replicas=4), Role(name="ps", replicas=2))


def test_ranks_follow_roles_then_indices_without_holes() -> None:
    members = [
        an_endpoint("ps", 1),
        an_endpoint("worker", 7),
        an_endpoint("worker", 2),
        an_endpoint("ps", 0),
    ]
    group = Group(a_job("plain", *ROLES), 1, members)
    assert [(m.role, m.index) for m in group.members] == [
        ("worker", 2), ("worker", 7), ("ps", 0), ("ps", 1),
    ]  # fmt: skip
    assert [group.rank(member) for member in group.members] == [0, 1, 2, 3]
    assert [m.index for m in group.by_role["worker"]] == [2, 7]
    assert group.first == members[2]


@pytest.mark.parametrize("leader", ["master", "chief", "launcher"])
def test_a_leader_is_first_wherever_it_is_listed(leader: str) -> None:
    job = a_job("torchrun", Role(name="worker", replicas=2), Role(name=leader))
    group = Group(job, 1, [an_endpoint("worker", 0), an_endpoint(leader, 0)])
    assert group.first.role == leader


def test_of_a_member_told_twice_the_last_counts() -> None:
    old, new = an_endpoint("worker", 0, host="old"), an_endpoint("worker", 0, host="new")
    group = Group(a_job("plain", *ROLES), 1, [old, an_endpoint("ps", 0), new])
    assert group.size == 2
    assert group.first.host == "new"


def test_the_run_id_holds_the_attempt() -> None:
    assert Group(a_job("plain"), 4, [an_endpoint("worker", 0)]).run_id == f"{UID}-4"


def test_addresses() -> None:
    assert address(an_endpoint("worker", 0, host="10.0.0.1", port=7)) == "10.0.0.1:7"
    assert address(an_endpoint("worker", 0, host="fd00::1", port=7)) == "[fd00::1]:7"
    assert address(an_endpoint("worker", 0, host="h", http=80), "http") == "h:80"


@pytest.mark.parametrize(
    ("hosts", "found"),
    [
        (("127.0.0.1", "::1", "localhost"), True),
        (("127.0.0.1", "10.0.0.1"), False),
        (("node-1",), False),
    ],
)
def test_loopback_is_where_all_members_are(hosts: tuple[str, ...], found: bool) -> None:
    members = [an_endpoint("worker", index, host=host) for index, host in enumerate(hosts)]
    assert bool(Group(a_job("plain"), 1, members).loopback) is found
