"""YAML in and out: files to objects, with every problem of a file, and objects to text for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import yaml

from shoal.objects import codec
from shoal.objects.admit import check_document, invalid, problems_of
from shoal.objects.errors import Invalid, Problem
from shoal.objects.kinds import KINDS, kind_of
from shoal.objects.meta import Object
from shoal.objects.paths import Path
from shoal.objects.yaml_events import LARGEST_FILE, Document, parse_documents, plain_scalar

__all__ = [
    "LARGEST_FILE",
    "Foreign",
    "Located",
    "load_located",
    "load_objects",
    "parse_documents",
    "to_yaml",
]

_LISTS = frozenset({"List", *(f"{name}List" for name in KINDS)})
_FIRST = ("apiVersion", "kind", "metadata", "spec", "status")
_TAG = "tag:yaml.org,2002:"


Foreign = Callable[[Any], Any]
"""Converts a document of another system; others it gives back."""


class Located(NamedTuple):
    """An object of a file, and where in the file its parts are."""

    object: Object
    source: str
    locate: Callable[[Path], tuple[int, int]]
    """Line and column of a path within the object."""


def load_objects(text: str | bytes, source: str, *, namespace: str = "") -> list[Object]:
    """See `load_located`, for callers that do not need the places."""
    return [each.object for each in load_located(text, source, namespace=namespace)]


def load_located(
    text: str | bytes, source: str, *, namespace: str = "", foreign: Foreign | None = None
) -> list[Located]:
    """The objects of a file of YAML or JSON, in its order; the items of a `List` (or `JobList`) are
    objects too, so that what `get -o yaml` writes can be read again.

    `source` names the file in errors. `namespace` is the one the caller works in, as for `admit`.
    `foreign` gives the document of an object of Shoal for each document as it is in the file.

    Raises:
        Invalid: anything is wrong anywhere in the file; `problems` holds everything that is, with
            lines and columns.
    """
    try:
        documents, problems = parse_documents(text)
    except Invalid as error:
        raise Invalid(f"{source}: {error}", hint=error.hint) from error
    objects: list[Located] = []
    seen: set[tuple[str, str, str]] = set()
    for document in documents:
        for value, path in _items(document):
            if foreign is not None:
                try:
                    value = foreign(value)
                except Invalid as error:
                    line, column = document.locate(path)
                    wrong = error.problems or (Problem("", error.message),)
                    problems += [Problem(each.path, each.message, line, column) for each in wrong]
                    continue
            obj, found = check_document(value, namespace=namespace)

            def locate(inner: Path, document: Document = document, path: Path = path) -> tuple[int, int]:
                return document.locate((*path, *inner))

            problems += problems_of(found, locate)
            if obj is None:
                continue
            objects.append(Located(obj, source, locate))
            identity = (kind_of(obj).name, *obj.key)
            if identity in seen:
                line, column = locate(("metadata", "name"))
                message = f"the file holds two objects {obj.kind} {obj.metadata.name}"
                problems.append(Problem("metadata.name", message, line, column))
            seen.add(identity)
    if problems:
        raise invalid(source, tuple(sorted(problems, key=lambda p: (p.line, p.column))))
    if not objects:
        raise Invalid(f"{source} holds no object")
    return objects


def to_yaml(*objects: Any) -> str:
    """Objects as YAML for people, defaults left out; several are separated by `---`.

    Plain documents are taken too, and written with all that they hold.
    """
    return "---\n".join(_dump(each) for each in objects)


def _items(document: Document) -> Iterator[tuple[Any, Path]]:
    """Each object of a document, and where it stands in it."""
    value = document.value
    if value is None:
        return
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        items = fields.get("items")
        if fields.get("kind") in _LISTS and isinstance(items, list):
            for at, item in enumerate(cast("list[Any]", items)):
                yield item, ("items", at)
            return
    yield value, ()


def _dump(each: Any) -> str:
    document = codec.builtins(each) if isinstance(each, Object) else each
    return yaml.dump(_ordered(document), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def _ordered(value: Any) -> Any:
    """Objects, also those in a list of them, in the order in which people write them."""
    if not isinstance(value, dict):
        return value
    document = cast("dict[str, Any]", value)
    first = [name for name in _FIRST if name in document]
    made = {name: document[name] for name in [*first, *document]}
    if made.get("status") == {}:
        del made["status"]
    if isinstance(made.get("items"), list):
        made["items"] = [_ordered(item) for item in made["items"]]
    return made


_Base: type[yaml.SafeDumper] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # pyright: ignore[reportUntypedBaseClass]  # the C dumper where it is built in
    """Quotes what this module would read as something else, and keeps short lists on one line."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    if plain_scalar(text) is not text:
        style = "'"
    untyped = cast("Any", dumper)  # Any: the stub leaves the type of the value open
    return untyped.represent_scalar(f"{_TAG}str", text, style=style)


def _represent_list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.Node:
    short = sum(len(str(item)) + 4 for item in items) < 90
    flow = short and not any(isinstance(item, dict | list) or "\n" in str(item) for item in items)
    return dumper.represent_sequence(f"{_TAG}seq", items, flow_style=flow)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(list, _represent_list)
