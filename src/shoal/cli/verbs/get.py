"""`shoal get`: objects as a table or as documents, once or while they change."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import msgspec

from shoal.cli.failures import INTERRUPTED, Usage
from shoal.cli.options import complete_kinds_and_names, reports, verb, whole
from shoal.cli.output import Table, decoded, object_table, say, write_document, write_json, write_names
from shoal.cli.settings import Settings, connect
from shoal.cli.targets import Target, beside, spelt, targets, with_nearest
from shoal.client import Client
from shoal.objects.errors import ShoalError
from shoal.objects.kinds import Kind, kind_named
from shoal.objects.nearest import nearest
from shoal.objects.quantities import Bytes, Seconds

if TYPE_CHECKING:
    from shoal.client.watch import Change

_ROWS = 100
_PAGE = 500
"""Objects of one answer of the server."""


@verb("get")
@click.argument(
    "objects",
    nargs=-1,
    required=True,
    metavar="KIND[/NAME] [NAME...]",
    shell_complete=complete_kinds_and_names,
)
@click.option("--watch", "-w", is_flag=True, help="Continue with every change.")
@click.option("--selector", "-l", default="", metavar="LABELS", help="Such as team=a,stage!=test.")
@click.option("--all-namespaces", "-A", is_flag=True, help="Not only this namespace.")
@click.option("--phase", default="", metavar="PHASE,...", help="Only jobs in these phases.")
@click.option(
    "--sort-by", default="", metavar="COLUMN", help="By this column; by default the newest are last."
)
@click.option("--limit", type=whole(0), help=f"The newest N, 0 for all; tables show {_ROWS} by default.")
@reports
def command(
    settings: Settings,
    objects: tuple[str, ...],
    watch: bool,
    selector: str,
    all_namespaces: bool,
    phase: str,
    sort_by: str,
    limit: int | None,
) -> int:
    """List objects, or show some of them.

    \b
    shoal get jobs                    the jobs of this namespace
    shoal get job/train -o yaml       one object, complete
    shoal get jobs -A -w              all jobs, and each change of them
    shoal get jobs --phase Failed     those that failed, the newest last
    """
    named = targets(objects, settings)
    kinds = list(dict.fromkeys(target.kind for target in named)) or [kind_named(objects[0])]
    if named and (selector or all_namespaces or phase or sort_by or limit is not None):
        raise Usage("-l, -A, --phase, --sort-by and --limit are for lists; leave the names out")
    chosen = _Chosen(kinds[0], _phases(kinds[0], phase), sort_by, limit)
    namespace = "" if all_namespaces or not kinds[0].namespaced else settings.namespace
    with connect(settings) as client:
        if watch:
            if len(kinds) > 1:
                raise Usage("only one kind can be watched at a time")
            try:
                _watch(client, settings, kinds[0], namespace, _filter(named, selector, chosen), chosen)
            except KeyboardInterrupt:
                return INTERRUPTED
        elif named:
            _show(client, settings, named, kinds)
        else:
            _list(client, settings, chosen, namespace, selector)
    return 0


@dataclass(frozen=True)
class _Chosen:
    """Which objects of a list are shown, and in which order."""

    kind: Kind
    phases: tuple[str, ...]
    sort_by: str
    limit: int | None

    def of(self, records: Sequence[Any], limit: int) -> list[Any]:
        """The records in order, the newest `limit` of them (0: all)."""
        return self.ordered(self.newest(self.wanted(records), limit))

    def read(
        self, client: Client, namespace: str, selector: str, limit: int
    ) -> tuple[list[Any], int, str]:
        """As `of`, for the server's list, with the number of all and the version of the list. It is read
        page by page, so that no more than a page and `limit` objects are in memory."""
        kept: list[Any] = []
        total, version, cursor = 0, "", ""
        while True:
            page = client.list(
                self.kind, namespace=namespace, selector=selector, limit=_PAGE, cursor=cursor
            )
            found = self.wanted(page.records)
            total, version, cursor = total + len(found), version or page.version, page.cursor
            kept += found
            if limit or not cursor:
                kept = self.newest(kept, limit)
            if not cursor:
                return self.ordered(kept), total, version

    def wanted(self, records: Sequence[Any]) -> Sequence[Any]:
        """Those in the phases that are asked for."""
        if not self.phases:
            return records
        known = [each for each in records if not each.problem]
        return [each for each in known if each.object.status.phase in self.phases]

    def newest(self, records: Sequence[Any], limit: int) -> list[Any]:
        """The newest `limit` (0: all), the newest last."""
        found = list(records)
        if self.kind.namespaced:  # a cluster's nodes and queues are found by their names
            found.sort(key=lambda each: 0.0 if each.problem else each.object.metadata.created)
        return found[-limit:] if limit else found

    def ordered(self, records: list[Any]) -> list[Any]:
        """By the column that is asked for.

        Raises:
            Usage: there is no such column.
        """
        if not self.sort_by:
            return records
        titles = {column.title.lower(): column for column in self.kind.columns}
        column = titles.get(self.sort_by.lower())
        if column is None:
            near = nearest(self.sort_by, list(titles))
            hint = f"did you mean {near}?" if near else f"the columns are {', '.join(titles)}"
            raise Usage(f"{self.kind.plural} have no column {self.sort_by}", hint=hint)
        now = time.time()
        known = [each for each in records if not each.problem]
        others = [each for each in records if each.problem]
        return others + sorted(known, key=lambda each: _sort_key(column.value(each.object, now)))


def _phases(kind: Kind, text: str) -> tuple[str, ...]:
    """The phases that `--phase` names."""
    if text and not kind.phases:
        raise Usage(f"{kind.plural} have no phases", hint="--phase is for jobs")
    known = {phase.lower(): phase for phase in kind.phases}
    names = [word.strip().lower() for word in text.split(",") if word.strip()]
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise Usage(f"there is no phase {unknown!r}", hint=f"the phases are {', '.join(kind.phases)}")
    return tuple(known[name] for name in names)


def _sort_key(cell: str) -> tuple[int, float, str]:
    """Numbers, lengths of time and sizes by their amount; then text; what is not known last."""
    amount = cell.partition("/")[0]
    for read in (float, Seconds.parse, Bytes.parse):
        try:
            return (0, float(read(amount)), "")
        except ValueError:
            continue
    return (2, 0.0, "") if cell in ("", "-") else (1, 0.0, cell)


def _list(client: Client, settings: Settings, chosen: _Chosen, namespace: str, selector: str) -> None:
    kind = chosen.kind
    most = chosen.limit if chosen.limit is not None else (0 if settings.machine_readable else _ROWS)
    records, total, version = chosen.read(client, namespace, selector, most)
    shown = len(records)
    if settings.output in ("json", "yaml"):
        items = [msgspec.Raw(record.document) for record in records]
        metadata = {"resourceVersion": version, "remaining": total - shown}
        write_document(settings, {"kind": f"{kind.name}List", "metadata": metadata, "items": items})
    elif settings.output == "name":
        write_names(spelt(kind, record.identity.name) for record in records)
    elif shown:
        objects = decoded(records)
        tree = not chosen.sort_by
        _write_table(client, settings, kind, objects, namespaces=not namespace, tree=tree)
    else:
        where = f" in namespace {namespace}" if namespace else ""
        matching = f" with {selector}" if selector else ""
        phases = f" in phase {' or '.join(chosen.phases)}" if chosen.phases else ""
        say(f"there are no {kind.plural}{where}{matching}{phases}")
    if shown < total:
        newest = "the newest " if kind.namespaced else ""
        say(f"showing {newest}{shown} of {total}; --limit 0 shows all")


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
            if objects:
                _write_table(client, settings, kind, objects, namespaces=False)
    for error in failures[1:]:
        say(f"error: {error.message}")
    if failures:
        raise failures[0]


def _write_table(
    client: Client,
    settings: Settings,
    kind: Kind,
    shown: list[Any],
    *,
    namespaces: bool,
    tree: bool = True,
) -> None:
    if kind.table is None or not tree:
        table, row = object_table(settings, kind, namespaces=namespaces)
        table.write([row(obj) for obj in shown])
        return
    made = kind.table(shown, beside(client, kind, shown), time.time(), settings.output == "wide")
    Table(made.titles).write(made.rows)


def _watch(
    client: Client,
    settings: Settings,
    kind: Kind,
    namespace: str,
    wanted: Callable[[Any], bool],
    chosen: _Chosen,
) -> None:
    """Rows as they are, then a row for each change; under `-o json` one `{type, object}` a line."""
    table, row = object_table(settings, kind, namespaces=not namespace)
    first: list[Any] | None = []

    def show(change: Change) -> None:
        record: Any = change.record
        if settings.output in ("json", "yaml"):
            write_json({"type": change.type, "object": msgspec.Raw(record.document)}, lines=True)
        elif settings.output == "name":
            write_names([spelt(kind, record.identity.name)])
        else:
            table.write([row(obj) for obj in decoded([record])])

    for change in client.reflect(kind, namespace):
        if change.type == "Synced":
            changes = {id(each.record): each for each in first or ()}
            records = chosen.of([each.record for each in first or ()], chosen.limit or 0)
            if records and not settings.machine_readable:
                table.write([row(obj) for obj in decoded(records)])
            else:
                for record in records:
                    show(changes[id(record)])
            first = None
        elif change.record is None or not (change.record.problem or wanted(change.record.object)):
            continue
        elif first is not None:
            first.append(change)
        else:
            show(change)


def _filter(named: Sequence[Target], selector: str, chosen: _Chosen) -> Callable[[Any], bool]:
    keys = {target.name for target in named}
    if keys:
        return lambda obj: obj.metadata.name in keys
    matches: Callable[[Any], bool] = lambda _obj: True  # noqa: E731
    if selector:
        from shoal.objects.selectors import Selector

        parsed = Selector.parse(selector)
        matches = lambda obj: parsed.matches(obj.metadata.labels)  # noqa: E731
    return lambda obj: matches(obj) and (not chosen.phases or obj.status.phase in chosen.phases)
