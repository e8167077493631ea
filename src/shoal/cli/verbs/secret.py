"""`shoal secret`: values that tasks may use. They come from standard input, a file or a prompt, never
from the command line, and no command shows them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from shoal.cli.edits import confirm
from shoal.cli.failures import Usage
from shoal.cli.options import assume_yes, reports, verb
from shoal.cli.output import emit, say, write_document
from shoal.cli.settings import Settings, connect
from shoal.objects.columns import age
from shoal.objects.errors import Exists, Invalid
from shoal.objects.secret import DEFAULT_KEY
from shoal.objects.text import stamp

_key = click.option(
    "--key", default=DEFAULT_KEY, show_default=True, help="The key of the value on standard input."
)
_files = click.option(
    "--from-file", "files", multiple=True, metavar="[KEY=]PATH", help="A value from a file; repeatable."
)


@click.group("secret")
def secret() -> None:
    """Store values for tasks; they are never shown.

    \b
    shoal secret create hub-token < token.txt          standard input, or a prompt on a terminal
    shoal secret create mail --from-file password=pw   one key for each file
    shoal secret set mail --key user < user.txt        one key of a secret that has others

    A job's role names them: `secrets: [{name: hub-token, env: HUB_TOKEN}]`, or `file: token`, which is
    then $SHOAL_SECRETS/token. A job waits until its secrets exist.
    """


@verb("create")
@click.argument("name")
@click.argument("values", nargs=-1, metavar="")
@_key
@_files
@click.option("--replace", is_flag=True, help="Replace all values of a secret that exists.")
@reports
def _create(
    settings: Settings,
    name: str,
    values: tuple[str, ...],
    key: str,
    files: tuple[str, ...],
    replace: bool,
) -> None:
    """Store a secret. Values come from standard input, files or a prompt."""
    found = _values_of("create", name, values, key, files)
    with connect(settings) as client:
        try:
            made = client.set_secret(settings.namespace, name, found, replace=replace)
        except Exists as error:
            hint = f"shoal secret set {name} sets some of its keys; --replace sets its values anew"
            raise Exists(error.message, hint=hint) from error
    if settings.machine_readable:
        _show(settings, [made], single=True)
    else:
        print(f"secret {name} {'is set' if replace else 'is created'}: {', '.join(made.keys)}")


@verb("set")
@click.argument("name")
@click.argument("values", nargs=-1, metavar="")
@_key
@_files
@reports
def _set(
    settings: Settings, name: str, values: tuple[str, ...], key: str, files: tuple[str, ...]
) -> None:
    """Set keys of a secret; its other keys stay. The secret is made if it does not exist."""
    found = _values_of("set", name, values, key, files)
    with connect(settings) as client:
        made = client.set_secret(settings.namespace, name, found, keep=True)
    if settings.machine_readable:
        _show(settings, [made], single=True)
    else:
        print(f"secret {name} is set: {', '.join(made.keys)}")


@verb("list")
@reports
def _list(settings: Settings) -> None:
    """List the secrets of a namespace with their keys."""
    with connect(settings) as client:
        _show(settings, client.secrets(settings.namespace))


@verb("describe")
@click.argument("name")
@reports
def _describe(settings: Settings, name: str) -> None:
    """Show the keys of a secret. Values are never shown."""
    now = time.time()
    with connect(settings) as client:
        found = client.secret(settings.namespace, name)
    if settings.machine_readable:
        _show(settings, [found], single=True)
        return
    for title, text in (
        ("Name", found.name),
        ("Namespace", found.namespace),
        ("Keys", ", ".join(found.keys)),
        ("Created", f"{stamp(found.created, now)} by {found.submitter}"),
        ("Last set", stamp(found.updated, now)),
    ):
        print(f"{title + ':':<11}{text}")


@verb("delete")
@click.argument("name")
@assume_yes
def _delete(settings: Settings, name: str, yes: bool) -> None:
    """Remove a secret. Running tasks keep its values; later starts wait for a new one."""
    confirm(f"delete secret {name}?", yes=yes)
    with connect(settings) as client:
        client.delete_secret(settings.namespace, name)
    print(f"secret {name} is deleted")


@verb("rotate-key")
def _rotate(settings: Settings) -> None:
    """Encrypt all secrets with a new key (admins). Running this again after an interruption is safe."""
    with connect(settings) as client:
        number = client.rotate_secret_key()
    print(
        f"{number} secret{'' if number == 1 else 's'} encrypted with a new key; the old one is removed"
    )


for _each in (_create, _set, _list, _describe, _delete, _rotate):
    secret.add_command(_each)


def _values_of(
    action: str, name: str, words: tuple[str, ...], key: str, files: tuple[str, ...]
) -> dict[str, bytes]:
    """By their keys, from files, standard input or a prompt."""
    if words:
        raise Usage(
            "a value cannot be given on the command line: every user of this machine sees the arguments "
            "of a process, and the shell keeps them in its history",
            hint=f"write it to standard input: shoal secret {action} {name} < FILE",
        )
    return dict(map(_from_file, files)) if files else {key: _from_stdin(name)}


def _from_file(argument: str) -> tuple[str, bytes]:
    key, mark, path = argument.partition("=")
    place = Path(path if mark else argument).expanduser()
    try:
        return (key if mark else place.name), place.read_bytes()
    except OSError as error:
        raise Invalid(f"{place} cannot be read: {error.strerror}") from error


def _from_stdin(name: str) -> bytes:
    """Without the newline that `echo` and editors add."""
    if sys.stdin.isatty():
        text: str = click.prompt(f"value of {name}", hide_input=True, err=True)
        return text.encode()
    value = sys.stdin.buffer.read().removesuffix(b"\n")
    if not value:
        raise Usage("standard input is empty", hint="write the value to it, or give --from-file")
    return value


def _show(settings: Settings, found: Any, *, single: bool = False) -> None:
    now = time.time()
    rows = [[s.name, ", ".join(s.keys), age(s.updated, now), age(s.created, now)] for s in found]
    if single and settings.output in ("json", "yaml"):
        write_document(settings, found[0])
        return
    emit(settings, {"items": tuple(found)}, ["NAME", "KEYS", "UPDATED", "AGE"], rows)
    if not found and not settings.machine_readable:
        say(f"no secrets in namespace {settings.namespace}")
