"""Data on stdout in the format that `-o` asks for; messages on stderr.

JSON and YAML carry objects exactly as the server sent them, fields unknown to this version included.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from shoal.cli.settings import Settings
from shoal.cli.table import Table
from shoal.objects import codec
from shoal.objects.kinds import Kind


def say(message: str) -> None:
    """A message for the person, not part of the data."""
    from shoal.objects.text import printable

    print(printable(message, newlines=True), file=sys.stderr, flush=True)


def emit(
    settings: Settings, document: Any, titles: Sequence[str], rows: Iterable[Sequence[str]]
) -> None:
    """Write a report: `document` (plain data or Structs) for programs, rows for people.

    With `-o name` the first cell of each row.
    """
    if settings.output in ("json", "yaml"):
        write_document(settings, document)
    elif settings.output == "name":
        write_names(row[0] for row in rows)
    else:
        Table(titles).write(list(rows))


def write_document(settings: Settings, document: Any) -> None:
    """Write plain data, Structs, or raw JSON (`msgspec.Raw`) as JSON or YAML."""
    if settings.output == "yaml":
        from shoal.objects.yaml import to_yaml

        plain = msgspec.json.decode(codec.encode(document))
        print(to_yaml(plain), end="", flush=True)
    else:
        write_json(document)


def write_json(document: Any, *, lines: bool = False) -> None:
    """Write one JSON document, indented, or on one line when more will follow."""
    text = codec.encode(document)
    shown = msgspec.json.format(text, indent=0 if lines else 2)
    if lines:
        shown = shown.replace(b"\n", b"")
    print(shown.decode(), flush=True)


def write_csv(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Comma-separated values under their titles; None is an empty cell."""
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(titles)
    writer.writerows(rows)
    sys.stdout.flush()


def write_names(names: Iterable[str]) -> None:
    """One `kind/name` a line."""
    for name in names:
        print(name)
    sys.stdout.flush()


def decoded(records: Iterable[Any]) -> list[Any]:  # Any: `Record`, of a layer that verbs do not see
    """The objects; those that this version cannot decode are named in a message each instead."""
    objects: list[Any] = []
    for record in records:
        if record.problem:
            say(record.problem)
        else:
            objects.append(record.object)
    return objects


def object_table(settings: Settings, kind: Kind, *, namespaces: bool) -> tuple[Table, Any]:
    """A table with the kind's columns, and the function that turns an object into its row."""
    columns = [c for c in kind.columns if settings.output == "wide" or not c.wide]
    titles = [column.title for column in columns]
    show_namespace = namespaces and kind.namespaced

    def row(obj: Any) -> list[str]:
        cells = [column.value(obj, time.time()) for column in columns]
        return [obj.metadata.namespace, *cells] if show_namespace else cells

    return Table(["NAMESPACE", *titles] if show_namespace else titles), row
