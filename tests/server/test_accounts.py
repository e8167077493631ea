"""Users, roles and tokens in the store."""

from __future__ import annotations

import pytest

from shoal.clock import Clock, SystemClock
from shoal.objects.account import RoleBinding
from shoal.objects.errors import Exists, Forbidden, Invalid, NotFound, Unauthenticated
from shoal.objects.kinds import TOKEN, USER
from shoal.server.accounts import Accounts
from shoal.store.authorise import authorise
from shoal.store.base import SYSTEM, Actor
from shoal.store.memory import MemoryStore

ADMIN = Actor("root", ("admin",))
MANAGER = Actor("mia", bindings=(("team", "manager"),))
ALICE = Actor("alice", bindings=(("team", "user"),))


class _Later(SystemClock):
    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


@pytest.fixture
def clock() -> _Later:
    return _Later()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(authorise=authorise)


@pytest.fixture
def accounts(store: MemoryStore, clock: Clock) -> Accounts:
    made = Accounts(store, clock)
    made.create_user("alice", (RoleBinding(role="user", namespace="team"),), actor=ADMIN)
    return made


def test_a_token_stands_for_its_user_with_the_roles_of_now(accounts: Accounts) -> None:
    _, text = accounts.create_token("alice", "laptop", 0.0, actor=ADMIN)
    assert accounts.authenticate(text) == ALICE
    accounts.grant("alice", "viewer", "team", actor=ADMIN)
    accounts.grant("alice", "manager", "", actor=ADMIN)
    assert accounts.authenticate(text) == Actor("alice", ("manager",), None, (("team", "viewer"),))
    accounts.revoke("alice", "", actor=ADMIN)
    accounts.revoke("alice", "team", actor=ADMIN)
    assert accounts.authenticate(text) == Actor("alice")


def test_the_store_never_holds_a_token_that_could_be_used(
    accounts: Accounts, store: MemoryStore
) -> None:
    _, text = accounts.create_token("alice", "", 0.0, actor=ADMIN)
    secret = text.partition(".")[2]
    for kind in (USER, TOKEN):
        for record in store.list(kind, actor=SYSTEM).records:
            assert secret.encode() not in record.document


def test_a_token_ends_by_expiry_revocation_and_with_its_user(accounts: Accounts, clock: _Later) -> None:
    _, short = accounts.create_token("alice", "", 60.0, actor=ALICE)
    second, revoked = accounts.create_token("", "", 0.0, actor=ALICE)
    _, last = accounts.create_token("alice", "", 0.0, actor=ADMIN)
    assert accounts.authenticate(short)
    clock.ahead = 61.0
    with pytest.raises(Unauthenticated, match="expired"):
        accounts.authenticate(short)
    accounts.revoke_token(second.metadata.name, actor=ALICE)
    with pytest.raises(Unauthenticated):
        accounts.authenticate(revoked)
    assert accounts.authenticate(last)
    accounts.delete_user("alice", actor=ADMIN)
    with pytest.raises(Unauthenticated):
        accounts.authenticate(last)
    accounts.create_user("alice", (RoleBinding(role="admin"),), actor=ADMIN)
    with pytest.raises(Unauthenticated):  # of the user before, who had the same name
        accounts.authenticate(last)


def test_what_is_no_token_is_refused(accounts: Accounts) -> None:
    token, text = accounts.create_token("alice", "", 0.0, actor=ADMIN)
    name = token.metadata.name
    for wrong in (
        "",
        "shoal-",
        text[:-1],
        text + "x",
        f"shoal-user-{name}.",
        name,
        "shoal-user-../x.y",
        "é",
    ):
        with pytest.raises(Unauthenticated):
            accounts.authenticate(wrong)


def test_users_make_tokens_for_themselves_alone(accounts: Accounts) -> None:
    accounts.create_user("bob", (), actor=ADMIN)
    token, _ = accounts.create_token("bob", "", 0.0, actor=ADMIN)
    with pytest.raises(Forbidden):
        accounts.create_token("bob", "", 0.0, actor=ALICE)
    with pytest.raises(NotFound):
        accounts.revoke_token(token.metadata.name, actor=ALICE)
    assert accounts.tokens(actor=ALICE) == ()
    assert [each.spec.user for each in accounts.tokens(actor=ADMIN)] == ["bob"]
    with pytest.raises(NotFound, match="no user eve"):
        accounts.create_token("eve", "", 0.0, actor=ADMIN)


def test_nobody_gives_more_than_they_have(accounts: Accounts) -> None:
    accounts.create_user("boss", (RoleBinding(role="admin"),), actor=ADMIN)
    accounts.grant("alice", "manager", "team", actor=MANAGER)
    for refused in (
        lambda: accounts.grant("alice", "viewer", "other", actor=MANAGER),
        lambda: accounts.grant("mia", "viewer", "", actor=MANAGER),
        lambda: accounts.revoke("boss", "", actor=MANAGER),
        lambda: accounts.grant("boss", "viewer", "", actor=Actor("m", ("manager",))),
        lambda: accounts.grant("alice", "admin", "", actor=Actor("m", ("manager",))),
        lambda: accounts.create_user("eve", (), actor=MANAGER),
        lambda: accounts.delete_user("alice", actor=MANAGER),
        lambda: accounts.grant("alice", "viewer", "team", actor=ALICE),
    ):
        with pytest.raises((Forbidden, NotFound)):
            refused()
    with pytest.raises(Invalid, match="cluster-wide"):
        accounts.grant("alice", "admin", "team", actor=ADMIN)


def test_managers_see_the_users_of_their_namespaces(accounts: Accounts) -> None:
    accounts.create_user("bob", (RoleBinding(role="user", namespace="other"),), actor=ADMIN)
    assert [user.metadata.name for user in accounts.users(actor=MANAGER)] == ["alice"]
    assert [user.metadata.name for user in accounts.users(actor=ADMIN)] == ["alice", "bob"]
    assert [user.metadata.name for user in accounts.users(actor=ALICE)] == ["alice"]


@pytest.mark.parametrize("name", ["", "Alice", "a b", "system", "job", "a:b", "../x"])
def test_names_that_users_cannot_have(accounts: Accounts, name: str) -> None:
    with pytest.raises(Invalid):
        accounts.create_user(name, (), actor=ADMIN)


def test_a_name_is_taken_once(accounts: Accounts) -> None:
    with pytest.raises(Exists):
        accounts.create_user("alice", (), actor=ADMIN)
    with pytest.raises(NotFound, match="no role in namespace other"):
        accounts.revoke("alice", "other", actor=ADMIN)
