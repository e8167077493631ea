"""Every route of the API, as every role, in its own namespace, another one and the whole cluster.

`RULES` repeats the documented rule of each route; a route without a rule here fails the test.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from shoal.client import Client
from shoal.objects.account import RoleBinding
from shoal.server.app import api
from shoal.store.base import SYSTEM
from tests.server.harness import LiveServer, a_job

pytestmark = pytest.mark.slow

OPEN, SELF, MEMBER, JOB_ONLY, ADMIN = "open", "self", "member", "job", "admin"
CONTROLLER = "controller"
RULES = {
    "version": OPEN, "healthz": OPEN, "readyz": OPEN, "schema": OPEN,
    "whoami": SELF, "listUsers": SELF, "listTokens": SELF, "createToken": SELF, "revokeToken": SELF,
    "createUser": ADMIN, "deleteUser": ADMIN, "grantRole": "manager", "revokeRole": "manager",
    "audit": "manager", "metrics": "cluster viewer",
    "acquireLease": ADMIN, "releaseLease": ADMIN,
    "events": "viewer", "attempts": "viewer", "usage": MEMBER,
    "reportMetrics": JOB_ONLY, "jobMetrics": "viewer",
    "explainInNamespace": "viewer", "explain": MEMBER,
    "logs": "viewer", "resumeLogs": "viewer", "tasks": "viewer", "exec": "user", "portForward": "user",
    "elastic": JOB_ONLY, "putElastic": JOB_ONLY, "reportElastic": JOB_ONLY, "resizeElastic": JOB_ONLY,
    "listSecrets": "user", "getSecret": "user", "putSecret": "user", "deleteSecret": "user",
    "rotateSecretKey": ADMIN,
    "listInNamespace": "viewer", "getInNamespace": "viewer",
    "createInNamespace": "user", "putInNamespace": "user", "deleteInNamespace": "user",
    "patchStatusInNamespace": CONTROLLER,
    "list": MEMBER, "get": MEMBER,
    "create": "cluster manager", "put": "cluster manager", "delete": "cluster manager",
    "patchStatus": CONTROLLER,
}  # fmt: skip
"""Route to the least role: in the namespace that is named, or cluster-wide where the rule says so."""
STATUS = b'{"writer": "w", "uid": "u", "counter": 0, "fields": {}}'
OWN_JOB = {"getInNamespace", "logs", "resumeLogs", "tasks", "exec", "portForward"}
RANK = ("viewer", "user", "manager", "admin")
PERSONS = ("anonymous", "nobody", *RANK[:3], *(f"cluster {role}" for role in RANK), "job")
SPACES = ("mine", "other", "")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path_factory.mktemp("roles") / "home", tcp=True)
    for space in ("mine", "other"):
        live.store.create(a_job("train", space), actor=SYSTEM)
    for person in PERSONS[1:-1]:
        role = person.removeprefix("cluster ")
        space = "" if person.startswith("cluster ") else "mine"
        bindings = () if role == "nobody" else (RoleBinding(role=role, namespace=space),)  # type: ignore[arg-type]
        live.accounts.create_user(person.replace(" ", "-"), bindings, actor=SYSTEM)
    yield live
    live.close()


@pytest.fixture(scope="module")
def tokens(server: LiveServer) -> dict[str, str]:
    made = {"anonymous": "", "job": server.token_of("mine", "train")}
    for person in PERSONS[1:-1]:
        name = person.replace(" ", "-")
        made[person] = server.accounts.create_token(name, "", 0.0, actor=SYSTEM)[1]
    return made


def api_routes() -> list[APIRoute]:
    return [
        route
        for included in api().routes
        for route in included.original_router.routes  # type: ignore[attr-defined]
        if isinstance(route, APIRoute)
    ]


def routes() -> list[tuple[str, str, str]]:
    return [
        (str(route.operation_id), method, route.path)
        for route in api_routes()
        for method in sorted(route.methods)
    ]


def test_no_request_takes_a_thread_for_its_parameters() -> None:
    """A dependency that is a plain function is called in a thread: two hops for each request."""
    waiting = [route.dependant for route in api_routes()]
    seen: set[object] = set()
    while waiting:
        dependant = waiting.pop()
        waiting += dependant.dependencies
        seen.add(dependant.call)
    assert len(seen) > 20
    assert [call for call in seen if not inspect.iscoroutinefunction(call)] == []


def expected(operation: str, person: str, space: str) -> set[int] | None:
    """The refusals of which one is expected; None: none of them."""
    rule = RULES[operation]
    if rule == OPEN:
        return None
    if person == "anonymous":
        return {401}
    if rule == CONTROLLER:  # no user, admins included, writes a status
        return {403}
    if rule == JOB_ONLY:
        return None if person == "job" else {401}
    if person == "job":
        allowed = operation == "whoami" or (operation in OWN_JOB and space == "mine")
        return None if allowed else {403}
    if rule == SELF:
        return None
    if person == "nobody":
        return {403}
    if rule == MEMBER:
        return None
    role, everywhere = person.removeprefix("cluster "), person.startswith("cluster ")
    # giving and taking cluster-wide roles is for admins
    least = "admin" if operation in ("grantRole", "revokeRole") and not space else rule
    least = least.removeprefix("cluster ")
    within = everywhere or (space == "mine" and not rule.startswith("cluster ") and rule != ADMIN)
    return None if within and RANK.index(role) >= RANK.index(least) else {403}


def call(server: LiveServer, token: str, method: str, path: str, body: bytes) -> int:
    connection = Client.connect(url=server.url, **server.trust).transport.address.open(20.0)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, body=body or None, headers=headers)
        return _status(connection)
    finally:
        connection.close()


def _status(connection: HTTPConnection) -> int:
    return connection.getresponse().status  # streams are left unread


@pytest.mark.parametrize(("operation", "method", "path"), routes(), ids=lambda part: str(part))
def test_each_role_gets_what_the_rule_says(
    server: LiveServer, tokens: dict[str, str], operation: str, method: str, path: str
) -> None:
    assert operation in RULES, f"{method} {path} has no access rule in this test: add it"
    spaced = "{namespace}" in path
    queried = operation in ("events", "attempts", "usage", "audit", "revokeRole", "grantRole")
    for person in PERSONS:
        for space in SPACES if queried else SPACES[:2] if spaced else ("",):
            at = path.replace("{namespace}", space).replace("{name:path}", "x")
            at = at.replace("{kind}", "Job")
            at = at.replace("{plural}", "jobs" if spaced else "queues")
            # writes go to what is not there: whoever may write gets 404 or 422 and changes nothing
            name = "train" if method in ("GET", "POST") else "absent"
            at = at.replace("{name}", name if spaced else "absent")
            body = b""
            if operation == "grantRole":
                body = b'{"role": "viewer", "namespace": "%s"}' % space.encode()
            elif method in ("POST", "PUT", "PATCH", "DELETE"):
                # of no form at all: the right is looked at first (a token for oneself takes no right)
                body = b"{}" if operation == "createToken" else b"no document"
                if RULES[operation] == CONTROLLER and person == "cluster admin":
                    body = STATUS  # an admin has the right, and is not the writer that the body names
            if operation in ("events", "attempts", "usage", "audit", "revokeRole"):
                at += f"?namespace={space}&name={'' if operation == 'audit' else 'train'}"
            if operation == "usage" and space:
                rule = expected_usage(person, space)
            else:
                rule = expected(operation, person, space)
            status = call(server, tokens[person], method, at, body)
            allowed = status not in (401, 403)
            where = f"{person} {method} {at}: {status}"
            assert allowed if rule is None else status in rule, where


def expected_usage(person: str, space: str) -> set[int] | None:
    return expected("events", person, space)


def test_a_list_across_namespaces_takes_a_cluster_wide_role(
    server: LiveServer, tokens: dict[str, str]
) -> None:
    for person in PERSONS:
        status = call(server, tokens[person], "GET", "/api/v1/jobs", b"")
        wanted = 200 if person.startswith("cluster") else 401 if person == "anonymous" else 403
        assert status == wanted, person
        status = call(server, tokens[person], "GET", "/api/v1/jobs?watch=true", b"")
        assert status == wanted, person


def test_the_lists_of_users_and_tokens_show_ones_own(server: LiveServer, tokens: dict[str, str]) -> None:
    def as_person(person: str) -> Client:
        return Client.connect(url=server.url, token=tokens[person], **server.trust)

    with as_person("user") as client:
        assert {user.name for user in client.users()} == {"user"}
        assert {token.user for token in client.tokens()} == {"user"}
    with as_person("cluster admin") as client:
        assert len(client.users()) == len(PERSONS) - 2
    with as_person("job") as client:
        assert client.whoami().job == "mine/train"


def test_every_rule_has_a_route() -> None:
    assert {operation for operation, _, _ in routes()} == set(RULES)


def test_the_owner_of_the_socket_is_admin(server: LiveServer, tmp_path: Path) -> None:
    with server.client() as owner:
        assert owner.whoami().bindings == ({"namespace": "", "role": "admin"},)
        assert b"shoal_" in owner.transport.request("GET", "/metrics").body
