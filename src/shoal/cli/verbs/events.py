"""`shoal events`: what happened to one object, in a namespace, or everywhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NoReturn

import click

from shoal.cli.failures import INTERRUPTED, Usage
from shoal.cli.options import MOMENT, complete_kinds_and_names, reports, verb, whole
from shoal.cli.output import Table, say, write_document, write_json, write_names
from shoal.cli.settings import Settings, connect
from shoal.cli.targets import Target, existing, targets
from shoal.objects.columns import age
from shoal.objects.text import stamp

if TYPE_CHECKING:
    from shoal.client import Client, Entry

_NEWEST = 100
_LOOK_AGAIN_SECONDS = 1.0


@verb("events")
@click.argument("objects", nargs=-1, metavar="[KIND/NAME]", shell_complete=complete_kinds_and_names)
@click.option("--watch", "-w", is_flag=True, help="Continue with new events.")
@click.option("--all-namespaces", "-A", is_flag=True, help="Not only this namespace.")
@click.option("--since", type=MOMENT, help="Only from then on: 10m, or 2026-05-01T09:30.")
@click.option("--limit", type=whole(0), help=f"The newest so many, 0 for all; {_NEWEST} by default.")
@reports
def command(
    settings: Settings,
    objects: tuple[str, ...],
    watch: bool,
    all_namespaces: bool,
    since: float | None,
    limit: int | None,
) -> int:
    """Show what happened.

    Without an object: everything of this namespace. Oldest first.
    """
    named = targets(objects, settings)
    if len(named) > 1 or (objects and not named):
        raise Usage("name one object, or none", hint="such as: shoal events job/train")
    query: dict[str, Any] = {"namespace": "" if all_namespaces else settings.namespace}
    if named:
        query = {"namespace": named[0].namespace, "kind": named[0].kind, "name": named[0].name}
    with connect(settings) as client:
        most = _NEWEST if limit is None else limit
        entries = client.events(**query, since=since or 0.0, limit=most)
        if named and not entries:
            existing(client, named[0])
        shower = _Shower(settings, named[0] if named else None, wide=all_namespaces)
        if not watch:
            shower.all_at_once(entries)
            if most and len(entries) == most and not settings.machine_readable:
                say(f"showing the newest {most}; --limit 0 shows all")
            return 0
        try:
            _watch(client, query, entries, shower)
        except KeyboardInterrupt:
            return INTERRUPTED


def _watch(
    client: Client, query: dict[str, Any], entries: tuple[Entry, ...], shower: _Shower
) -> NoReturn:
    """History has no watch: look again every second, from the last entry on."""
    last = ""
    while True:
        shower.one_by_one(entries)
        last = entries[-1].id if entries else last
        time.sleep(_LOOK_AGAIN_SECONDS)
        entries = client.events(**query, after=last)


class _Shower:
    def __init__(self, settings: Settings, target: Target | None, *, wide: bool) -> None:
        self._settings = settings
        where = "" if wide else f" in namespace {settings.namespace}"
        self._nothing = f"{target} has no events" if target else f"there are no events{where}"
        self._object_shown = target is None
        self._namespace_shown = wide
        titles = ["AT", "TYPE", *(["OBJECT"] if self._object_shown else []), "REASON", "MESSAGE"]
        self._table = Table(titles)

    def all_at_once(self, entries: tuple[Entry, ...]) -> None:
        if self._settings.output in ("json", "yaml"):
            write_document(self._settings, {"items": entries})
        elif entries or self._settings.output == "name":
            self.one_by_one(entries)
        else:
            say(self._nothing)

    def one_by_one(self, entries: tuple[Entry, ...]) -> None:
        if self._settings.output in ("json", "yaml"):
            for entry in entries:
                write_json(entry, lines=True)
        elif self._settings.output == "name":
            write_names(f"{entry.about.kind.lower()}/{entry.about.name}" for entry in entries)
        elif entries:
            now = time.time()
            self._table.write([self._row(entry, now) for entry in entries])

    def _row(self, entry: Entry, now: float) -> list[str]:
        about = f"{entry.about.kind.lower()}/{entry.about.name}"
        if self._namespace_shown and entry.about.namespace:
            about = f"{entry.about.namespace}/{about}"
        count = f" (x{entry.count})" if entry.count > 1 else ""
        at = stamp(entry.at, now) if self._settings.output == "wide" else age(entry.at, now)
        objects = [about] if self._object_shown else []
        return [at, entry.severity, *objects, entry.reason, entry.message + count]
