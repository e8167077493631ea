"""`shoal login`, `logout` and `config`: the contexts that name servers and the tokens used there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from shoal.cli import contexts
from shoal.cli.contexts import Context
from shoal.cli.edits import confirm
from shoal.cli.failures import Usage
from shoal.cli.options import assume_yes, reports, verb
from shoal.cli.output import emit, say
from shoal.cli.settings import Settings
from shoal.client import Client
from shoal.client.address import Address, certificate_fingerprint, normal_fingerprint
from shoal.objects.errors import NotFound

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@verb("login")
@click.argument("url")
@click.option("--name", default="", help="The context's name; the host's unless given.")
@click.option("--token-file", type=click.Path(dir_okay=False), help="The token; asked for unless given.")
@click.option("--fingerprint", default="", help="SHA-256 of the server's certificate, to be trusted.")
@click.option("--system-ca", is_flag=True, help="Trust the system's authorities, pin nothing.")
@assume_yes
def login(
    settings: Settings,
    url: str,
    name: str,
    token_file: str | None,
    fingerprint: str,
    system_ca: bool,
    yes: bool,
) -> None:
    """Log in to a server over TLS, and make it the current context.

    \b
    shoal login https://shoal.example.org:7450 --token-file alice.token

    Without --fingerprint the server's is shown and confirmed; it is pinned from then on.
    """
    address = Address.parse(url)
    if address.path or not (address.secure or address.host in _LOOPBACK):
        raise Usage(f"{url} is not reached over TLS", hint="write https://HOST:PORT")
    pinned = ""
    if address.secure and not system_ca:
        pinned = normal_fingerprint(fingerprint) if fingerprint else _first_use(address, yes)
    label = name or address.host.replace(".", "-").replace(":", "-")
    path = _token_path(label, token_file)
    text = path.read_text(encoding="utf-8").strip()
    with Client.connect(url=url, token=text, fingerprint=pinned) as client:
        found = client.whoami()
    spaces = [b["namespace"] for b in found.bindings if b["namespace"]]
    space = settings.namespace_flag or (spaces[0] if len(spaces) == 1 else "")
    contexts.save(Context(label, url, str(path), space, "", pinned), current=True)
    say(f"logged in to {url} as {found.name}; context {label} is the current one")


def _first_use(address: Address, yes: bool) -> str:
    shown = certificate_fingerprint(address)
    say(f"the certificate of {address.text} has the SHA-256 fingerprint\n  {shown}")
    say("compare it with the one in server.json on the server (`fingerprint`)")
    confirm("trust it from now on?", yes=yes)
    return shown


def _token_path(label: str, given: str | None) -> Path:
    if given:
        return Path(given).expanduser().absolute()
    text = (
        click.prompt("token", hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.readline()
    )
    if not text.strip():
        raise Usage("there is no token", hint="give --token-file, or write it to stdin")
    path = contexts.config_file().with_name(f"{label}.token")
    contexts.write_private(path, text.strip() + "\n")
    return path


@verb("logout")
@click.argument("name", required=False)
def logout(settings: Settings, name: str | None) -> None:
    """Remove a context with the token that `login` stored.

    The token itself stays valid until it is revoked (`shoal token revoke`) or expires.
    """
    current, known = contexts.everything()
    label = name or settings.context_flag or current
    if label not in known:
        raise NotFound(f"there is no context {label!r}", hint="shoal config get-contexts lists them")
    stored = contexts.config_file().with_name(f"{label}.token")
    if known[label].token_file == str(stored):
        stored.unlink(missing_ok=True)
    contexts.remove(label)
    say(f"context {label} is removed")


@click.group("config")
def config() -> None:
    """List, change and choose contexts: the servers of this CLI."""


@verb("get-contexts")
@reports
def _get_contexts(settings: Settings) -> None:
    """List contexts; * marks the current one."""
    current, known = contexts.everything()
    rows = [
        [
            each.name,
            "*" if each.name == current else "",
            each.url or f"home {each.home or '~/.shoal'}",
            each.namespace,
        ]
        for each in known.values()
    ]
    items = [{**_document(each), "current": each.name == current} for each in known.values()]
    emit(settings, {"items": items}, ["NAME", "CURRENT", "SERVER", "NAMESPACE"], rows)


@verb("use-context")
@click.argument("name")
def _use_context(settings: Settings, name: str) -> None:
    """Make a context the current one."""
    contexts.use(name)
    say(f"context {name} is the current one")


@verb("set-context")
@click.argument("name")
@click.option("--url", help="The server's address.")
@click.option("--token-file", help="The file that holds the token.")
@click.option("--fingerprint", help="SHA-256 of the certificate to trust.")
@click.option("--home-folder", help="A local cluster's home, in place of an address.")
def _set_context(
    settings: Settings,
    name: str,
    url: str | None,
    token_file: str | None,
    fingerprint: str | None,
    home_folder: str | None,
) -> None:
    """Add or change a context; the namespace is that of -n."""
    _, known = contexts.everything()
    changes = {
        "url": Address.parse(url).text if url else None,
        "token_file": token_file,
        "fingerprint": normal_fingerprint(fingerprint) if fingerprint else None,
        "home": home_folder,
        "namespace": settings.namespace_flag or None,
    }
    before = known.get(name, Context(name))
    given = {key: value for key, value in changes.items() if value is not None}
    contexts.save(contexts.changed(before, given), current=False)
    say(f"context {name} is set")


@verb("delete-context")
@click.argument("name")
def _delete_context(settings: Settings, name: str) -> None:
    """Remove a context."""
    contexts.remove(name)
    say(f"context {name} is removed")


@verb("view")
@click.option("--show-origin", is_flag=True, help="Where each value comes from.")
@reports
def _view(settings: Settings, show_origin: bool) -> None:
    """Show what holds for this command line: server, namespace, context."""
    context = settings.context
    space = (
        "flag" if settings.namespace_flag
        else "$SHOAL_NAMESPACE" if os.environ.get("SHOAL_NAMESPACE")
        else "context" if context.namespace else "default"
    )  # fmt: skip
    chosen = (
        "flag" if settings.context_flag
        else "$SHOAL_CONTEXT" if os.environ.get("SHOAL_CONTEXT")
        else "file" if context.name else "default"
    )  # fmt: skip
    home = (
        "flag" if settings.home_flag
        else "context" if context.home
        else "$SHOAL_HOME" if os.environ.get("SHOAL_HOME") else "default"
    )  # fmt: skip
    values = [
        (
            "file",
            str(contexts.config_file()),
            "$SHOAL_CONFIG" if os.environ.get("SHOAL_CONFIG") else "default",
        ),
        ("context", context.name, chosen),
        ("url", context.url, "context" if context.url else ""),
        ("home", "" if settings.remote else str(settings.home), "" if settings.remote else home),
        ("namespace", settings.namespace, space),
    ]
    document = {key: {"value": value, "origin": origin} for key, value, origin in values}
    rows = [[key, value, *([origin] if show_origin else [])] for key, value, origin in values if value]
    emit(settings, document, ["SETTING", "VALUE", *(["ORIGIN"] if show_origin else [])], rows)


for _each in (_get_contexts, _use_context, _set_context, _delete_context, _view):
    config.add_command(_each)


def _document(context: Context) -> dict[str, str]:
    fields = ("name", "url", "token_file", "namespace", "home", "fingerprint")
    return {name: getattr(context, name) for name in fields if getattr(context, name)}
