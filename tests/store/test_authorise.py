"""The table of access rules: every role, verb and place against the documented answer."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest

from shoal.objects.account import ROLES, TOKEN, USER
from shoal.objects.errors import Forbidden
from shoal.objects.kinds import JOB, LEASE, MEMBERSHIP, NODE, QUEUE, Kind
from shoal.store.authorise import ACTIONS, CLUSTER, NAMESPACED, Action, authorise, require
from shoal.store.base import SYSTEM, Actor, Verb

TASK = Actor("job:team/mine", ("job",), ("team", "mine", "u"))
VERBS: tuple[Verb, ...] = get_args(Verb)
READS = ("get", "list", "watch")
WRITES = ("create", "update", "delete")


def bound(role: str, namespace: str = "") -> Actor:
    return Actor("alice", bindings=((namespace, role),)) if namespace else Actor("alice", (role,))


def allowed(actor: Actor, verb: Verb, kind: Kind, namespace: str) -> bool:
    try:
        authorise(actor, verb, kind, namespace, "x")
    except Forbidden:
        return False
    return True


def does(actor: Actor, action: Action, namespace: str) -> bool:
    try:
        require(actor, action, namespace)
    except Forbidden:
        return False
    return True


def test_the_platform_and_admins_do_everything_that_is_not_internal() -> None:
    for verb, kind in itertools.product(VERBS, (JOB, QUEUE, NODE)):
        assert allowed(SYSTEM, verb, kind, "team")
        assert allowed(bound("admin"), verb, kind, "team")
    for action in ACTIONS:
        assert does(bound("admin"), action, "team")
    for kind in (USER, TOKEN, MEMBERSHIP):
        assert not allowed(bound("admin"), "get", kind, "")


@pytest.mark.parametrize("role", ROLES[:-1])
def test_a_role_in_a_namespace_ends_there(role: str) -> None:
    actor = bound(role, "team")
    for verb in (*READS, *WRITES):
        assert allowed(actor, verb, JOB, "team") == (verb in READS or role != "viewer")
        assert not allowed(actor, verb, JOB, "other")
        assert not allowed(actor, verb, JOB, "")
        for kind in (QUEUE, NODE):
            assert allowed(actor, verb, kind, "") == (verb in READS)
    assert not allowed(actor, "patch_status", JOB, "team")
    assert not allowed(actor, "lease", LEASE, "")


@pytest.mark.parametrize("role", ROLES)
def test_a_cluster_wide_role_holds_in_every_namespace(role: str) -> None:
    actor = bound(role)
    for namespace in ("team", "other", ""):
        for verb in READS:
            assert allowed(actor, verb, JOB, namespace)
        for verb in WRITES:
            assert allowed(actor, verb, JOB, namespace) == (role != "viewer")
    for verb in WRITES:
        assert allowed(actor, verb, QUEUE, "") == (role in ("manager", "admin"))


def test_without_a_role_nothing_is_read() -> None:
    for verb, kind in itertools.product(VERBS, (JOB, QUEUE, NODE)):
        assert not allowed(Actor("bob"), verb, kind, "team" if kind.namespaced else "")
    assert not any(does(Actor("bob"), action, "team") for action in ACTIONS)


def test_every_verb_and_action_has_a_rule() -> None:
    assert set(ACTIONS) == set(get_args(Action))
    assert set(CLUSTER) == set(VERBS)
    assert set(NAMESPACED) == set(VERBS) - {"lease"}


@pytest.mark.parametrize(
    ("role", "actions"),
    [
        ("viewer", {"tasks", "logs", "explain", "history", "usage"}),
        ("user", {"tasks", "logs", "explain", "history", "usage", "exec", "secrets"}),
        (
            "manager",
            {"tasks", "logs", "explain", "history", "usage", "exec", "secrets", "audit", "grant"},
        ),
    ],
)
def test_the_actions_of_a_role(role: str, actions: set[Action]) -> None:
    cluster: set[Action] = {"inventory", "metrics", "users", "tokens", "server"}
    found = {action for action in ACTIONS if does(bound(role, "team"), action, "team")}
    assert found - cluster == actions
    assert not any(does(bound(role, "team"), action, "other") for action in actions)
    assert {a for a in cluster if does(bound(role, "team"), a, "")} == {"inventory"}
    assert {a for a in cluster if does(bound(role), a, "")} == {"inventory", "metrics"}


def test_a_refusal_names_the_role_that_is_missing() -> None:
    with pytest.raises(Forbidden) as refused:
        authorise(bound("viewer", "team"), "delete", JOB, "team", "x")
    assert (
        refused.value.message == "alice may not delete jobs in namespace team: that needs the role user"
    )
    with pytest.raises(Forbidden) as refused:
        authorise(bound("viewer", "team"), "list", JOB, "", "")
    assert refused.value.hint.endswith("name a namespace with -n, such as team")
    with pytest.raises(Forbidden) as refused:
        authorise(bound("viewer", "team"), "update", NODE, "", "n0")
    assert refused.value.hint == "shoal whoami shows your roles"
    with pytest.raises(Forbidden) as refused:
        require(bound("viewer", "team"), "tokens")
    assert refused.value.hint == "shoal whoami shows your roles"


def test_a_jobs_token_reads_that_job_and_nothing_else() -> None:
    authorise(TASK, "get", JOB, "team", "mine")
    allowed_calls = {("get", "Job", "team", "mine")}
    places = [("team", "mine"), ("team", "other"), ("other", "mine"), ("team", ""), ("", "")]
    for verb, kind, (namespace, name) in itertools.product(VERBS, (JOB, QUEUE, NODE), places):
        if (verb, kind.name, namespace, name) in allowed_calls:
            continue
        with pytest.raises(Forbidden):
            authorise(TASK, verb, kind, namespace, name)


def test_a_jobs_token_acts_on_its_own_job_only() -> None:
    for action in ACTIONS:
        for namespace, name in (("team", "mine"), ("team", "other"), ("other", "mine"), ("", "")):
            if action in ("tasks", "exec", "logs") and (namespace, name) == ("team", "mine"):
                require(TASK, action, namespace, name)
                continue
            with pytest.raises(Forbidden):
                require(TASK, action, namespace, name)
