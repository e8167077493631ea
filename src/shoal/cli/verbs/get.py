"""`shoal get`: objects as a table or as documents, once or while they change."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec

from shoal.cli.completion import complete_kinds_and_names
from shoal.cli.connection import connect
from shoal.cli.failures import INTERRUPTED, Usage
from shoal.cli.options import reports, verb, whole
from shoal.cli.output import object_table, say, write_document, write_json, write_names
from shoal.cli.settings import Settings
from shoal.cli.table import Table
from shoal.cli.targets import Target, spelt, targets, with_nearest
from shoal.client import Client
from shoal.objects.errors import ShoalError
from shoal.objects.kinds import QUEUE, Kind, kind_named
from shoal.objects.queue import Queue

_ROWS = 100


@verb("get")
@click.argument(
    "objects",
    nargs=-1,
    required=True,
    metavar="KIND[/NAME] [NAME...]",
    shell_complete=complete_kinds_and_names,
)
@click.option("--watch", "-w", is_flag=True, help="Go on with every change.")
@click.option("--selector", "-l", default="", metavar="LABELS", help="Such as team=a,stage!=test.")
@click.option("--all-namespaces", "-A", is_flag=True, help="Not only this namespace.")
@click.option(
    "--limit",
    type=whole(0),
    help=f"At most so many, 0 for all; tables show {_ROWS} unless told.",
)
@reports
def command(
    settings: Settings,
    objects: tuple[str, ...],
    watch: bool,
    selector: str,
    all_namespaces: bool,
    limit: int | None,
) -> int:
    """List objects, or show some of them.

    \b
    shoal get jobs                    the jobs of this namespace
    shoal get job/train -o yaml       one object, complete
    shoal get jobs -A -w              all jobs, and each change of them
    """
    named = targets(objects, settings)
    kinds = list(dict.fromkeys(target.kind for target in named)) or [kind_named(objects[0])]
    if named and (selector or all_namespaces):
        raise Usage("-l and -A are for lists; leave the names out")
    namespace = "" if all_namespaces or not kinds[0].namespaced else settings.namespace
    with connect(settings) as client:
        if watch:
            if len(kinds) > 1:
                raise Usage("only one kind can be watched at a time")
            try:
                _watch(client, settings, kinds[0], namespace, named, selector)
            except KeyboardInterrupt:
                return INTERRUPTED
        elif named:
            _show(client, settings, named, kinds)
        else:
            _list(client, settings, kinds[0], namespace, selector, limit)
    return 0


def _list(
    client: Client, settings: Settings, kind: Kind, namespace: str, selector: str, limit: int | None
) -> None:
    most = limit if limit is not None else (0 if settings.machine_readable else _ROWS)
    page = client.list(kind, namespace=namespace, selector=selector, limit=most)
    shown, total = len(page.records), len(page.records) + page.remaining
    if settings.output in ("json", "yaml"):
        items = [msgspec.Raw(record.document) for record in page.records]
        metadata = {"resourceVersion": page.version, "remaining": page.remaining}
        write_document(settings, {"kind": f"{kind.name}List", "metadata": metadata, "items": items})
    elif settings.output == "name":
        write_names(spelt(kind, record.object.metadata.name) for record in page.records)
    elif shown and kind is QUEUE:
        _write_queues(client, settings, [record.object for record in page.records])
    elif shown:
        table, row = object_table(settings, kind, namespaces=not namespace)
        table.write([row(record.object) for record in page.records])
    else:
        where = f" in namespace {namespace}" if namespace else ""
        matching = f" with {selector}" if selector else ""
        say(f"there are no {kind.plural}{where}{matching}")
    if page.remaining:
        say(f"showing {shown} of {total}; --limit 0 shows all")


def _show(client: Client, settings: Settings, named: Sequence[Target], kinds: list[Kind]) -> None:
    records: list[Any] = []
    failures: list[ShoalError] = []
    for target in named:
        try:
            records.append(client.record(target.kind, target.namespace, target.name))
        except ShoalError as error:
            failures.append(with_nearest(client, target, error))
    if settings.output in ("json", "yaml"):
        if not failures:
            items = [msgspec.Raw(record.document) for record in records]
            write_document(settings, items[0] if len(named) == 1 else {"kind": "List", "items": items})
    elif settings.output == "name":
        write_names(spelt(record.kind, record.object.metadata.name) for record in records)
    else:
        for kind in kinds:
            objects = [record.object for record in records if record.kind is kind]
            if objects and kind is QUEUE:
                _write_queues(client, settings, objects)
            elif objects:
                table, row = object_table(settings, kind, namespaces=False)
                table.write([row(obj) for obj in objects])
    for error in failures[1:]:
        say(f"error: {error.message}")
    if failures:
        raise failures[0]


def _write_queues(client: Client, settings: Settings, shown: list[Queue]) -> None:
    """A queue's numbers are also those of the queues below it, whichever of them are shown."""
    from shoal.cli.queuetext import queue_table

    there = {queue.metadata.name: queue for queue in (r.object for r in client.list(QUEUE).records)}
    there |= {queue.metadata.name: queue for queue in shown}
    titles, rows = queue_table(shown, list(there.values()), time.time(), wide=settings.output == "wide")
    Table(titles).write(rows)


def _watch(
    client: Client,
    settings: Settings,
    kind: Kind,
    namespace: str,
    named: Sequence[Target],
    selector: str,
) -> None:
    """Rows as they are, then a row for each change; under `-o json` one `{type, object}` a line."""
    wanted = _filter(named, selector)
    table, row = object_table(settings, kind, namespaces=not namespace)
    first: list[Any] | None = []
    for change in client.reflect(kind, namespace):
        if change.type == "Synced":
            if first:
                table.write([row(obj) for obj in first])
            first = None
            continue
        record = change.record
        if record is None or not wanted(record.object):
            continue
        if settings.output in ("json", "yaml"):
            write_json({"type": change.type, "object": msgspec.Raw(record.document)}, lines=True)
        elif settings.output == "name":
            write_names([spelt(kind, record.object.metadata.name)])
        elif first is not None:
            first.append(record.object)
        else:
            table.write([row(record.object)])


def _filter(named: Sequence[Target], selector: str) -> Callable[[Any], bool]:
    keys = {target.name for target in named}
    if keys:
        return lambda obj: obj.metadata.name in keys
    if selector:
        from shoal.objects.selectors import Selector

        parsed = Selector.parse(selector)
        return lambda obj: parsed.matches(obj.metadata.labels)
    return lambda obj: True
