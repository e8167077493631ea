"""From the text of a YAML or JSON file to plain documents with the places of their parts.

Unquoted words mean what YAML 1.2 and JSON agree on: `true`, `false`, `null` and decimal numbers are
themselves, everything else is text (YAML 1.1 would also make booleans of `on`, `no` and `y`, sixties of
`12:30`, and octals of `0777`). Keys are always text. Tags other than those of plain scalars are refused:
nothing in a file can name a Python type. `<<` merges, as it does in most readers.

**Bounds**, each with one clear error. The size of a file is tested before it is parsed. Values are
counted as they are read, and every use of an alias counts as much as what it repeats, so a small file
that stands for a huge one is refused as soon as that is known. Parsing is by events, without recursion,
so deep nesting is an error and never a crash.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

from shoal.objects.errors import Invalid, Problem
from shoal.objects.paths import Path, spell


@dataclass(slots=True)
class Place:
    """Line and column (from 1) of a value, or of the key it belongs to, with the places inside it.

    Shared where an alias repeats a value: the text that is wrong is the anchored one.
    """

    line: int
    column: int
    inside: dict[str | int, Place] | None = None


@dataclass(frozen=True)
class Document:
    """One document of a file: its plain value, and where its parts stand."""

    value: Any
    place: Place

    def locate(self, path: Path) -> tuple[int, int]:
        """Line and column of the path, or of the nearest part around it that is there."""
        place = self.place
        for part in path:
            inner = (place.inside or {}).get(part)
            if inner is None:
                break
            place = inner
        return place.line, place.column


_WORDS = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,39})")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]{1,40}|(?:0|[1-9][0-9]{0,39})(?:\.[0-9]{0,40})?)(?:[eE][-+]?[0-9]{1,3})?"
)


def plain_scalar(text: str) -> bool | int | float | str | None:
    """The value of an unquoted word."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "-+.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if abs(number) != float("inf") else text
    return text


LARGEST_FILE = 4 << 20
"""Bytes of a file."""
_LARGEST_COUNT = 500_000
"""Values of a file, aliases repeated; a long text counts as several."""
_DEEPEST = 100
_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS = frozenset(f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null")) | {"!"}
_COLLECTION_TAGS = frozenset({f"{_TAG}map", f"{_TAG}seq"})


def parse_documents(text: str | bytes) -> tuple[list[Document], list[Problem]]:
    """The documents of a file of YAML or JSON, in order, and what is wrong with it as such.

    A file that cannot be read to its end gives the documents before that place.

    Raises:
        Invalid: the file is too large, or is not text.
    """
    words = _text(text)
    reader = _Reader()
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        for event in yaml.parse(words, Loader=loader):
            reader.take(event)
    except _Stop as stop:
        reader.problems.append(stop.problem)
    except yaml.YAMLError as error:
        # JSON is YAML but for a few of its escapes.
        document = _json(words) if words.lstrip()[:1] in ("{", "[") else None
        if document is not None:
            return [document], []
        reader.problems.append(_syntax(error))
    return reader.documents, reader.problems


class _Stop(Exception):
    """Reading on makes no sense."""

    def __init__(self, message: str, position: tuple[int, int], path: Path = ()) -> None:
        self.problem = Problem(spell(path), message, *position)


@dataclass(frozen=True, slots=True)
class _Read:
    """A complete value. `size` counts it with everything inside it, aliases repeated."""

    value: Any
    place: Place
    size: int


@dataclass(slots=True)
class _Open:
    """A list or map before its end has been read. `key` is the one that waits for its value."""

    value: dict[str, Any] | list[Any]
    place: Place
    anchor: str | None
    size: int = 1
    key: yaml.ScalarEvent | None = None
    merged: list[_Read] = field(default_factory=list[_Read])

    @property
    def inside(self) -> dict[str | int, Place]:
        return cast("dict[str | int, Place]", self.place.inside)


class _Reader:
    """Builds documents from events."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self.problems: list[Problem] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, _Read] = {}
        self._count = 0

    def take(self, event: yaml.Event) -> None:
        match event:
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._start(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._end(event)
            case yaml.DocumentStartEvent():
                self._anchors.clear()
            case _:
                pass

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        self._test_tag(event, event.tag, _SCALAR_TAGS)
        text: str = event.value or ""
        if self._wants_key():
            self._open[-1].key = event
            if event.anchor is not None:
                self._anchors[event.anchor] = _Read(text, Place(*_position(event)), 1)
            return self._counted(1 + len(text) // 64, event)
        quoted = event.tag in (None, "!") and not event.implicit[0]
        value = text if quoted or event.tag == f"{_TAG}str" else plain_scalar(text)
        read = _Read(value, Place(*_position(event)), 1 + len(text) // 64)
        self._counted(read.size, event)
        return self._add(read, event, event.anchor)

    def _alias(self, event: yaml.AliasEvent) -> None:
        name = event.anchor or ""
        if self._wants_key():
            raise _Stop("a key is written out, not repeated by an alias", _position(event), self._path())
        if any(frame.anchor == name for frame in self._open):
            raise _Stop(
                f"*{name} stands inside what it repeats, which would never end", _position(event)
            )
        if name not in self._anchors:
            raise _Stop(f"*{name} repeats &{name}, which is not there", _position(event))
        self._counted(self._anchors[name].size, event)
        self._add(self._anchors[name], event, None)

    def _start(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        if len(self._open) >= _DEEPEST:
            raise _Stop(f"nested deeper than {_DEEPEST} levels", _position(event))
        if self._wants_key():
            raise _Stop("a key is a single text", _position(event), self._path())
        self._test_tag(event, event.tag, _COLLECTION_TAGS)
        self._counted(1, event)
        value: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._open.append(_Open(value, Place(*_position(event), {}), event.anchor))

    def _end(self, event: yaml.Event) -> None:
        frame = self._open.pop()
        for read in frame.merged:
            self._merge(frame, read.value, read.place)
        self._add(_Read(frame.value, frame.place, frame.size), event, frame.anchor)

    def _counted(self, size: int, event: yaml.Event) -> None:
        self._count += size
        if self._count > _LARGEST_COUNT:
            raise _Stop(f"the file stands for more than {_LARGEST_COUNT} values", _position(event))

    def _add(self, read: _Read, event: yaml.Event, anchor: str | None) -> None:
        """Put a complete value where the text has it."""
        if anchor is not None:
            self._anchors[anchor] = read
        if not self._open:
            self.documents.append(Document(read.value, read.place))
            return
        frame = self._open[-1]
        frame.size += read.size
        if isinstance(frame.value, list):
            frame.inside[len(frame.value)] = read.place
            frame.value.append(read.value)
        elif frame.key is not None:
            self._add_entry(frame, frame.value, frame.key, read)
            frame.key = None

    def _add_entry(
        self, frame: _Open, entries: dict[str, Any], key: yaml.ScalarEvent, read: _Read
    ) -> None:
        name = key.value or ""
        line, column = _position(key)
        if name == "<<" and key.implicit[0]:
            frame.merged.append(read)
        elif name in entries:
            message = f"{name[:60]} is given twice, first on line {frame.inside[name].line}"
            self.problems.append(Problem(spell(self._path()), message, line, column))
        else:
            entries[name] = read.value
            frame.inside[name] = Place(line, column, read.place.inside)

    def _merge(self, frame: _Open, value: Any, place: Place) -> None:
        """`<<`: entries of other maps, where this one has none of its own."""
        inside = place.inside or {}
        if isinstance(value, list):
            for at, each in enumerate(cast("list[Any]", value)):
                self._merge(frame, each, inside.get(at, place))
        elif isinstance(value, dict):
            entries = cast("dict[str, Any]", frame.value)
            for key, item in cast("dict[str, Any]", value).items():
                if key not in entries:
                    entries[key] = item
                    frame.inside[key] = inside[key]
        else:
            raise _Stop("<< takes a map, or a list of maps", (place.line, place.column), self._path())

    def _wants_key(self) -> bool:
        return bool(self._open) and self._open[-1].key is None and isinstance(self._open[-1].value, dict)

    def _path(self) -> Path:
        path: list[str | int] = []
        for frame in self._open:
            if isinstance(frame.value, list):
                path.append(len(frame.value))
            elif frame.key is not None:
                path.append(frame.key.value or "")
        return tuple(path)

    def _test_tag(self, event: yaml.Event, tag: str | None, known: frozenset[str]) -> None:
        if tag is not None and tag not in known:
            message = f"the tag {tag[:60]} is not understood here: leave it out"
            self.problems.append(Problem(spell(self._path()), message, *_position(event)))


def _text(text: str | bytes) -> str:
    size = len(text)
    if size > LARGEST_FILE:
        limit = f"{LARGEST_FILE >> 20} MiB"
        hint = "split it into several files"
        raise Invalid(f"the file has {size / (1 << 20):.1f} MiB; at most {limit} are read", hint=hint)
    try:
        return text.decode("utf-8-sig") if isinstance(text, bytes) else text.encode().decode()
    except UnicodeError as error:
        where = getattr(error, "start", 0)
        raise Invalid(f"this is not UTF-8 text: see byte {where}") from error


def _position(event: yaml.Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)


def _syntax(error: yaml.YAMLError) -> Problem:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        said = error.problem or error.context or "it cannot be read"
        hint = ""
        if "mapping values" in said:
            hint = " (quote a text that holds ': ', and see the indentation)"
        elif "cannot start any token" in said:
            hint = " (indent with spaces, not tabs, and quote a text that begins with @, ` or %)"
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
        return Problem("", f"this is not YAML: {said}{hint}", line, column)
    reason = getattr(error, "reason", "") or "it cannot be read"
    return Problem("", f"this is not YAML: {reason}")


def _json(text: str) -> Document | None:
    try:
        return Document(json.loads(text, object_pairs_hook=_unique), Place(1, 1))
    except (ValueError, RecursionError):
        return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key is given twice")
    return made
