"""`shoal user`, `token`, `whoami` and `audit`: the API's users, and what they have written."""

from __future__ import annotations

import time
from typing import Any

import click

from shoal.cli.edits import confirm
from shoal.cli.failures import Usage
from shoal.cli.options import DURATION, MOMENT, assume_yes, reports, verb, whole
from shoal.cli.output import emit, say
from shoal.cli.settings import Settings, connect
from shoal.cli.targets import targets
from shoal.objects.columns import age
from shoal.objects.text import stamp

_NEWEST = 100
_ROLE = click.Choice(("viewer", "user", "manager", "admin"))


@click.group("user")
def user() -> None:
    """Add users and give them roles.

    \b
    shoal user create alice
    shoal user grant alice user -n team-a       in one namespace
    shoal user grant alice viewer --cluster     in all of them

    Roles: viewer reads; user also runs and changes jobs; manager also gives roles in the namespace and
    reads its audit events; admin, cluster-wide only, may do everything.
    """


@verb("create")
@click.argument("name")
@click.option("--role", type=_ROLE, help="A first role, in the namespace of -n.")
@click.option("--cluster", is_flag=True, help="The role holds in the whole cluster.")
@reports
def _create(settings: Settings, name: str, role: str | None, cluster: bool) -> None:
    """Add a user."""
    bindings = [(role, _space(settings, cluster))] if role else []
    with connect(settings) as client:
        _show_users(settings, [client.create_user(name, bindings)])
    if not settings.machine_readable:
        say(f"make a token for {name}: {settings.spelt(f'token create --user {name}')}")


@verb("list")
@reports
def _list(settings: Settings) -> None:
    """List users with their roles."""
    with connect(settings) as client:
        _show_users(settings, client.users())


@verb("grant")
@click.argument("name")
@click.argument("role", type=_ROLE)
@click.option("--cluster", is_flag=True, help="In the whole cluster, not in the namespace of -n.")
@reports
def _grant(settings: Settings, name: str, role: str, cluster: bool) -> None:
    """Give a user a role, in place of the one that it has there."""
    with connect(settings) as client:
        _show_users(settings, [client.grant(name, role, _space(settings, cluster))])


@verb("revoke")
@click.argument("name")
@click.option("--cluster", is_flag=True, help="The cluster-wide role, not the one in the namespace.")
@reports
def _revoke(settings: Settings, name: str, cluster: bool) -> None:
    """Take a user's role in a namespace."""
    with connect(settings) as client:
        _show_users(settings, [client.revoke(name, _space(settings, cluster))])


@verb("delete")
@click.argument("name")
@assume_yes
def _delete(settings: Settings, name: str, yes: bool) -> None:
    """Remove a user with all its tokens. Its jobs stay."""
    confirm(f"delete user {name} and all its tokens?", yes=yes)
    with connect(settings) as client:
        client.delete_user(name)
    say(f"user {name} is deleted")


for _each in (_create, _list, _grant, _revoke, _delete):
    user.add_command(_each)


@click.group("token")
def token() -> None:
    """Make, list and revoke tokens for the API over TCP."""


@verb("create")
@click.option("--user", "name", default="", help="The user; yourself unless given (admins: any).")
@click.option("--expires", type=DURATION, default="90d", show_default=True, help="0s: never.")
@click.option("--description", default="", help="What it is for.")
@reports
def _create_token(settings: Settings, name: str, expires: float, description: str) -> None:
    """Make a token. It is shown once: only its hash is kept.

    Off a terminal stdout holds the token alone, for a file.
    """
    with connect(settings) as client:
        made = client.create_token(name, description=description, lifetime_seconds=float(expires))
    if settings.output in ("json", "yaml"):
        emit(settings, made, [], [])
        return
    until = f"until {stamp(made.expires, time.time())}" if made.expires else "without end"
    say(f"token {made.id} of {made.user}, valid {until}; it cannot be shown again:")
    print(made.token)


@verb("list")
@reports
def _list_tokens(settings: Settings) -> None:
    """List your tokens (admins: all), without their secret."""
    now = time.time()
    with connect(settings) as client:
        found = client.tokens()
    rows = [
        [
            t.id,
            t.user,
            t.description,
            age(t.created, now),
            stamp(t.expires, now) if t.expires else "never",
        ]
        for t in found
    ]
    emit(settings, {"items": found}, ["ID", "USER", "DESCRIPTION", "AGE", "EXPIRES"], rows)


@verb("revoke")
@click.argument("identity", metavar="ID")
def _revoke_token(settings: Settings, identity: str) -> None:
    """Make a token invalid from the next request on."""
    with connect(settings) as client:
        client.revoke_token(identity)
    say(f"token {identity} is revoked")


for _each in (_create_token, _list_tokens, _revoke_token):
    token.add_command(_each)


@verb("whoami")
@reports
def whoami(settings: Settings) -> None:
    """Show your name and roles, and the server."""
    context = settings.context.name if settings.remote else ""
    with connect(settings) as client:
        found, server = client.whoami(), client.transport.address.text
    document = {"name": found.name, "job": found.job, "bindings": found.bindings}
    rows = [[b["namespace"] or "(all)", b["role"]] for b in found.bindings]
    if not settings.machine_readable:
        job = f", as the tasks of job {found.job}" if found.job else ""
        say(f"{found.name} at {server}{f' (context {context})' if context else ''}{job}")
    emit(settings, {**document, "context": context, "server": server}, ["NAMESPACE", "ROLE"], rows)


@verb("audit")
@click.argument("objects", nargs=-1, metavar="[KIND/NAME]")
@click.option("--all-namespaces", "-A", is_flag=True, help="Not only this namespace.")
@click.option("--since", type=MOMENT, help="Only from then on: 10m, or 2026-05-01T09:30.")
@click.option("--limit", type=whole(0), default=str(_NEWEST), help="The newest so many, 0 for all.")
@reports
def audit(
    settings: Settings, objects: tuple[str, ...], all_namespaces: bool, since: float | None, limit: int
) -> None:
    """Show audit events: one for each write.

    BEFORE and AFTER are the first digits of the SHA-256 of what users own of the object.
    """
    named = targets(objects, settings)
    if len(named) > 1:
        raise Usage("name one object, or none", hint="such as: shoal audit job/train")
    query: dict[str, Any] = {"namespace": "" if all_namespaces else settings.namespace}
    if named:
        query = {"namespace": named[0].namespace, "kind": named[0].kind, "name": named[0].name}
    with connect(settings) as client:
        found = client.audit(**query, since=since or 0.0, limit=limit)
    now = time.time()
    rows = [
        [
            stamp(e.at, now),
            str(e.data.get("actor", "")),
            e.reason,
            "/".join(filter(None, (e.about.namespace, e.about.kind.lower(), e.about.name))),
            str(e.data.get("before", ""))[:12],
            str(e.data.get("after", ""))[:12],
        ]
        for e in found
    ]
    emit(settings, {"items": found}, ["AT", "ACTOR", "VERB", "OBJECT", "BEFORE", "AFTER"], rows)
    if limit and len(found) == limit and not settings.machine_readable:
        say(f"showing the newest {limit}; --limit 0 shows all")


def _space(settings: Settings, cluster: bool) -> str:
    return "" if cluster else settings.namespace


def _show_users(settings: Settings, users: Any) -> None:
    rows = [
        [
            each.name,
            ", ".join(f"{b['role']} in {b['namespace'] or 'all namespaces'}" for b in each.bindings),
        ]
        for each in users
    ]
    emit(settings, {"items": tuple(users)}, ["NAME", "ROLES"], rows)
