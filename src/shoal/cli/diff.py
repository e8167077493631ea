"""What applying objects would change: each object as it is and as it would be, field by field.

Documents are flattened to `path: value` lines (`quota.cpu: 4`, nested names joined by dots) and
compared line by line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from shoal.cli.targets import Target
from shoal.client import Client
from shoal.objects import codec
from shoal.objects.errors import Invalid, NotFound, Problem, ShoalError
from shoal.objects.kinds import kind_of
from shoal.objects.meta import Object
from shoal.objects.paths import spell
from shoal.objects.text import BOLD, painted, plural, printable

if TYPE_CHECKING:
    from shoal.objects.yaml import Located

_LONGEST_VALUE = 60
_PART = re.compile(r'(?P<name>[A-Za-z_][-A-Za-z0-9_]*)|\[(?P<place>\d+)\]|\["(?P<quoted>[^"]*)"\]')


@dataclass(frozen=True)
class Change:
    """One object: what a file asks for, what it would become, and in which fields that differs."""

    target: Target
    wanted: Object
    after: Any
    result: Literal["created", "changed", "unchanged"]
    fields: list[tuple[str, Any, Any]]

    def document(self) -> dict[str, Any]:
        """For programs; an old or new value that is not there is null."""
        shown = [{"path": path, "old": _null(old), "new": _null(new)} for path, old, new in self.fields]
        return {
            "kind": self.target.kind.name,
            "namespace": self.target.namespace,
            "name": self.target.name,
            "result": self.result,
            "changes": shown,
        }


def plan(client: Client, located: list[Located]) -> list[Change]:
    """Ask the server what each object would become; nothing is changed.

    Raises:
        Invalid: with everything that the server does not admit in any of them.
    """
    created = {(kind_of(obj).name, obj.metadata.name) for obj in (each.object for each in located)}
    changes: list[Change] = []
    problems: list[Problem] = []
    first: ShoalError | None = None
    for each in located:
        obj = each.object
        target = Target(kind_of(obj), *obj.key)
        try:
            changes.append(_change(client, target, obj))
        except ShoalError as error:
            if _waits_for_others(obj, error, created):
                changes.append(Change(target, obj, obj, "created", []))
                continue
            first = first or error
            problems += _problems(each, target, error)
    if first is None:
        return changes
    if len(problems) == 1:
        first.message = f"{problems[0]}; nothing was changed"
        if isinstance(first, Invalid):
            raise Invalid(first.message, tuple(problems), hint=first.hint)
        raise first
    raise Invalid(
        f"the server refuses {plural(len(problems), 'thing')}; nothing was changed", tuple(problems)
    )


def print_plan(changes: list[Change]) -> None:
    """Each object with what becomes of it, and its fields: old value, new value."""
    import sys

    for change in changes:
        word = {"created": "will be created", "changed": "will be changed"}.get(
            change.result, "stays as it is"
        )
        print(painted(f"{change.target} {word}", BOLD, sys.stdout))
        for path, old, new in change.fields:
            print(f"  {printable(path)}: {_shown(old)} -> {_shown(new)}")
    sys.stdout.flush()


def summary(changes: list[Change]) -> str:
    """`2 to create, 1 to change, 3 unchanged`."""
    counts = {
        word: sum(change.result == result for change in changes)
        for result, word in (
            ("created", "to create"),
            ("changed", "to change"),
            ("unchanged", "unchanged"),
        )
    }
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


def _change(client: Client, target: Target, obj: Object) -> Change:
    try:
        before = client.record(target.kind, target.namespace, target.name).object
    except NotFound:
        before = None
    applied = client.apply(obj, dry_run=True)
    after = applied.record.object
    fields: list[tuple[str, Any, Any]] = []
    if before is not None and applied.result == "changed":
        fields = differences(_peoples(before), _peoples(after))
    return Change(target, obj, after, applied.result, fields)


def _peoples(obj: Object) -> dict[str, Any]:
    """The parts that people write."""
    metadata = obj.metadata
    annotations = {k: v for k, v in metadata.annotations.items() if not k.startswith("shoal.dev/")}
    spec = codec.builtins(obj.spec)
    declared: msgspec.Struct = obj.spec
    for field in msgspec.structs.fields(declared):
        _with_names(getattr(declared, field.name), spec.get(field.encode_name))
    return {"labels": metadata.labels, "annotations": annotations, "spec": spec}


def _with_names(items: Any, shown: Any) -> None:
    """Put the names of the items of a list where they were left out as the default."""
    if isinstance(items, tuple) and isinstance(shown, list):
        for item, document in zip(cast("tuple[Any, ...]", items), cast("list[Any]", shown), strict=True):
            if isinstance(item, msgspec.Struct) and isinstance(name := getattr(item, "name", None), str):
                document.setdefault("name", name)


def _waits_for_others(obj: Object, error: ShoalError, created: set[tuple[str, str]]) -> bool:
    """Whether all that is wrong is that the object refers to others that the same files create."""
    if not isinstance(error, Invalid) or not error.problems:
        return False
    references = kind_of(obj).references(obj)
    known = {spell(each.path) for each in references if (each.kind, each.name) in created}
    return {problem.path for problem in error.problems} <= known


def _problems(located: Located, target: Target, error: ShoalError) -> list[Problem]:
    """What the server refuses, with the file, the object, and the line where the file has the field."""
    found = error.problems if isinstance(error, Invalid) else ()
    where = f"{located.source}, {target}"
    return [
        Problem(each.path, each.message, *located.locate(_parsed(each.path)), file=where)
        for each in found or (Problem("", error.message),)
    ]


def _parsed(path: str) -> tuple[str | int, ...]:
    """`spec.roles[0].env["A.B"]` as its parts."""
    return tuple(
        int(found["place"]) if found["place"] else (found["quoted"] or found["name"])
        for found in _PART.finditer(path)
    )


def _shown(value: Any) -> str:
    text = printable(str(value) if not isinstance(value, list) else ", ".join(map(str, value)))  # pyright: ignore[reportUnknownArgumentType]
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def _null(value: Any) -> Any:
    return None if value is MISSING else value


class _Missing:
    def __repr__(self) -> str:
        return "(none)"


MISSING = _Missing()
"""Stands where a field is not there."""


def flattened(document: Any, path: str = "") -> dict[str, Any]:
    """Path to value, for every leaf. Lists of plain values are one leaf; empty containers none."""
    if isinstance(document, dict) and document:
        entries = cast("dict[str, Any]", document)
        return {
            key: value
            for name, part in entries.items()
            for key, value in flattened(part, _joined(path, str(name))).items()
        }
    if isinstance(document, list) and any(isinstance(part, dict) for part in document):  # pyright: ignore[reportUnknownVariableType]
        items = cast("list[Any]", document)
        return {
            key: value
            for place, part in enumerate(items)
            for key, value in flattened(part, f"{path}[{_name_of(part, place)}]").items()
        }
    return {path: document} if document not in ({}, [], None) else {}


def differences(before: Any, after: Any) -> list[tuple[str, Any, Any]]:
    """What differs between two documents: path, old value, new value (MISSING where there is none)."""
    old, new = flattened(before), flattened(after)
    paths = dict.fromkeys([*new, *old])
    return [
        (path, old.get(path, MISSING), new.get(path, MISSING))
        for path in paths
        if old.get(path, MISSING) != new.get(path, MISSING)
    ]


def _joined(path: str, name: str) -> str:
    part = f'"{name}"' if "." in name else name
    return f"{path}.{part}" if path else part


def _name_of(part: Any, place: int) -> str:
    """An item of a list by its name, where it has one, so that a moved item is no change."""
    if isinstance(part, dict):
        name: Any = cast("dict[str, Any]", part).get("name")
        if isinstance(name, str):
            return name
    return str(place)
