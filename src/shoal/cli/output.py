"""Data on stdout in the format that `-o` asks for; messages on stderr; tables.

JSON and YAML carry objects exactly as the server sent them, fields unknown to this version included.

A table's columns are as wide as their text, narrowed to the terminal when there is one. Off a
terminal rows are one line each, whatever their length. On one, the widest columns are narrowed first,
never below a dozen characters, and their text wraps: nothing is cut. Where not even that fits,
columns before the last are left out, and a line on stderr names them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from shoal.cli.settings import Settings
from shoal.objects import codec
from shoal.objects.kinds import Kind
from shoal.objects.text import printable

_GAP = 2
_NARROWEST = 12


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


class Table:
    """Rows under titles. Widths are fixed by the first rows written, so a watch can go on below."""

    def __init__(self, titles: Sequence[str], *, stream: Any = None, indent: int = 0) -> None:
        self._titles = tuple(titles)
        self._stream = sys.stdout if stream is None else stream
        self._indent = indent
        self._widths: list[int] | None = None
        self._shown: list[int] = []
        """Columns that have room, by their place."""

    def write(self, rows: Sequence[Sequence[str]]) -> None:
        """Write rows, under the titles the first time."""
        clean = [[printable(cell) for cell in row] for row in rows]
        left_out: list[str] = []
        if self._widths is None:
            left_out = self._fit([list(self._titles), *clean])
            if any(self._titles):
                self._line(self._titles)
        for row in clean:
            self._line(row)
        self._stream.flush()
        if left_out:
            wider = "a wider terminal, a pipe or -o yaml shows all"
            print(
                f"not shown for lack of room: {', '.join(left_out)}; {wider}",
                file=sys.stderr,
                flush=True,
            )

    def _line(self, cells: Sequence[str]) -> None:
        widths = self._widths or []
        wraps = terminal_width(self._stream) is not None
        columns = [_wrapped(cells[i], widths[i]) if wraps else [cells[i]] for i in self._shown]
        for parts in zip_longest(*columns, fillvalue=""):
            padded = (part.ljust(widths[i]) for part, i in zip(parts, self._shown, strict=True))
            print((" " * self._indent + (" " * _GAP).join(padded)).rstrip(), file=self._stream)

    def _fit(self, rows: list[list[str]]) -> list[str]:
        """Decide which columns are shown and how wide; the titles of those that are not."""
        widths = [max(len(row[i]) for row in rows) for i in range(len(self._titles))]
        self._widths, self._shown = widths, list(range(len(widths)))
        room = terminal_width(self._stream)
        if room is None:
            return []
        left_out: list[str] = []
        while len(self._shown) > 2 and self._over(room, [min(w, _NARROWEST) for w in widths]) > 0:
            left_out.insert(0, self._titles[self._shown.pop(-2)])  # the last is the message
        while (over := self._over(room, widths)) > 0:
            # the last of the widest is narrowed: names come first, messages last
            widest = max(self._shown, key=lambda i: (widths[i], i))
            if widths[widest] <= _NARROWEST:
                break
            others = max((widths[i] for i in self._shown if i != widest), default=0)
            widths[widest] -= max(1, min(over, widths[widest] - max(others, _NARROWEST)))
        return left_out

    def _over(self, room: int, widths: Sequence[int]) -> int:
        """By how much the shown columns are wider than the terminal."""
        gaps = _GAP * (len(self._shown) - 1)
        return self._indent + gaps + sum(widths[i] for i in self._shown) - room


def terminal_width(stream: Any) -> int | None:
    """Columns of the terminal that `stream` is; None where it is none."""
    if not stream.isatty():
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def _wrapped(text: str, width: int) -> list[str]:
    if len(text) <= width:
        return [text]
    from textwrap import wrap

    return wrap(text, max(1, width), break_on_hyphens=False) or [""]
