"""What must hold for the values of a status, beyond the type of each.

Checked by the store before a status patch is kept, of any writer: every reader may then rely on
index sets that parse, on slots of roles that exist and do not overlap, and on numbers that are counts,
amounts or stamps. A rule reads the patched fields and the spec; it costs about as much as the text of
the patch, also for a job of ten thousand tasks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, cast

import msgspec
from msgspec import inspect

from shoal.objects import codec
from shoal.objects.job import JobStatus, RoleStatus, Slots
from shoal.objects.job_rules import LARGEST_JOB
from shoal.objects.nearest import did_you_mean
from shoal.objects.paths import Finding, Path
from shoal.objects.ranges import IndexSet

_LARGEST = 2**53
"""Numbers beyond it are not exact in JSON."""

_MAP = r"(?:[0-9]{{1,7}}(?:-[0-9]{{1,7}})?={}(?:,|$))*"
_COUNTS = re.compile(_MAP.format("[0-9]{1,9}"))
_EXIT_CODES = re.compile(_MAP.format("(?:-1|[0-9]{1,3})"))
_OUTCOMES = re.compile(_MAP.format("(?:Succeeded|Failed)"))
_WORDS = re.compile(_MAP.format(r"[-A-Za-z0-9_.]+"))
_RANGE = re.compile(r"([0-9]+)-([0-9]+)=")
_INDEX_MAPS = {
    "incarnations": ("incarnations", _COUNTS),
    "outcomes": ("outcomes", _OUTCOMES),
    "exit_codes": ("exitCodes", _EXIT_CODES),
    "failures": ("failures", _COUNTS),
    "nodes": ("nodes", _WORDS),
}
"""Field of a RoleStatus to its name on the wire and what its text is."""


class _RoleSpec(msgspec.Struct, frozen=True):
    name: str = "worker"
    resources: dict[str, Any] = {}


class _ArraySpec(msgspec.Struct, frozen=True):
    indices: str = ""


class _JobSpec(msgspec.Struct, frozen=True):
    """What of a Job's spec its status refers to."""

    roles: tuple[_RoleSpec, ...] = ()
    array: _ArraySpec | None = None


def check_numbers(status: msgspec.Struct) -> Iterator[Finding]:
    """Numbers of any status are counts, amounts and stamps: finite, and at least 0."""
    yield from _numbers(status, ("status",))


def check_job_status(status: JobStatus, spec: bytes) -> Iterator[Finding]:
    """Everything wrong with fields of a Job's status of the right types, beside its stored spec."""
    path: Path = ("status",)
    listed = (
        ((*path, "allocation", "slots"), status.allocation.slots),
        ((*path, "scheduling", "reserved"), status.scheduling.reserved),
        ((*path, "scheduling", "place"), status.scheduling.place),
    )
    if status.exit_code is not None and not -1 <= status.exit_code <= 255:
        message = f"an exit code is at least 0 (-1: unknown) and at most 255; found {status.exit_code}"
        yield Finding((*path, "exitCode"), message)
    if not status.roles and not any(slots for _, slots in listed):
        return
    job = codec.decode(spec, _JobSpec)
    for place, slots in listed:
        yield from _slots(slots, job, place)
    names = [role.name for role in job.roles]
    for at, role in enumerate(status.roles):
        yield from _role(role, names, (*path, "roles", at))
    yield from repeated((role.name for role in status.roles), (*path, "roles"))


def repeated(items: Iterable[str], path: Path) -> Iterator[Finding]:
    """A finding for each item that an earlier one equals."""
    seen: set[str] = set()
    for at, item in enumerate(items):
        if item in seen:
            yield Finding((*path, at), f"{item} is listed twice")
        seen.add(item)


def _slots(slots: tuple[Slots, ...], job: _JobSpec, path: Path) -> Iterator[Finding]:
    roles = {role.name: role for role in job.roles}
    known = IndexSet.span(LARGEST_JOB) if job.array is None else IndexSet.parse(job.array.indices)
    taken: dict[str, list[tuple[int, int, int]]] = {}
    devices: set[tuple[str, str]] = set()
    for at, each in enumerate(slots):
        here = (*path, at)
        role = roles.get(each.role)
        if role is None:
            yield Finding(
                (*here, "role"), f"the job has no role {each.role}{did_you_mean(each.role, roles)}"
            )
        if not each.node:
            yield Finding((*here, "node"), "a slot is on a node")
        try:
            indices = IndexSet.parse(each.indices)
        except ValueError as error:
            yield Finding((*here, "indices"), str(error))
            continue
        if not indices:
            yield Finding((*here, "indices"), "a slot has at least one index")
            continue
        if indices - known:
            yield Finding((*here, "indices"), f"the job has no task of index {each.indices}")
        taken.setdefault(each.role, []).extend((low, high, at) for low, high in indices.ranges)
        if len(each.devices) % len(indices):
            message = f"{len(each.devices)} devices cannot be divided among {len(indices)} tasks"
            yield Finding((*here, "devices"), message)
        if role is not None and "gpuShare" not in role.resources:
            for device in each.devices:
                if (each.node, device) in devices:
                    yield Finding((*here, "devices"), f"device {device} of {each.node} is given twice")
                devices.add((each.node, device))
    for name, ranges in taken.items():
        yield from _overlaps(name, sorted(ranges), path)


def _overlaps(role: str, ranges: list[tuple[int, int, int]], path: Path) -> Iterator[Finding]:
    last = -1
    for low, high, at in ranges:
        if low <= last:
            yield Finding((*path, at, "indices"), f"index {low} of role {role} has a slot already")
        last = max(last, high)


def _role(role: RoleStatus, names: list[str], path: Path) -> Iterator[Finding]:
    if role.name not in names:
        yield Finding(
            (*path, "name"), f"the job has no role {role.name}{did_you_mean(role.name, names)}"
        )
    for name, (wire, pattern) in _INDEX_MAPS.items():
        text: str = getattr(role, name)
        if not pattern.fullmatch(text) or any(int(a) > int(b) for a, b in _RANGE.findall(text)):
            shown = text if len(text) <= 60 else f"{text[:57]}..."
            yield Finding((*path, wire), f"{shown!r} is not such a map as 0-99=2,100=3")


def _numbers(value: msgspec.Struct, path: Path) -> Iterator[Finding]:
    for name, wire, kind in _numeric(type(value)):
        item: Any = getattr(value, name)
        yield from kind(item, (*path, wire))


def _number(value: Any, path: Path) -> Iterator[Finding]:
    if value is not None and not 0 <= value <= _LARGEST:
        yield Finding(path, f"a number of a status is at least 0 and at most 2^53; found {value}")


def _struct(value: Any, path: Path) -> Iterator[Finding]:
    if value is not None:
        yield from _numbers(value, path)


def _structs(values: Any, path: Path) -> Iterator[Finding]:
    for at, value in enumerate(values):
        yield from _numbers(value, (*path, at))


def _entries(values: Any, path: Path) -> Iterator[Finding]:
    for key, value in values.items():
        yield from _number(value, (*path, key))


_Walk = Callable[[Any, Path], Iterator[Finding]]


@cache
def _numeric(struct: type[msgspec.Struct]) -> tuple[tuple[str, str, _Walk], ...]:
    """(attribute, name on the wire, how to check it) of each field that holds numbers."""
    described = cast("inspect.StructType", inspect.type_info(struct))
    fields = (field for field in described.fields if field.name != "exit_code")  # -1: unknown
    found = ((each.name, each.encode_name, _walk_of(each.type)) for each in fields)
    return tuple((name, wire, walk) for name, wire, walk in found if walk is not None)


def _walk_of(kind: inspect.Type) -> _Walk | None:
    match kind:
        case inspect.IntType() | inspect.FloatType() | inspect.CustomType():
            return _number
        case inspect.Metadata():
            extra = cast("dict[str, Any]", cast("Any", kind).extra or {})
            return None if extra.get("signed") else _walk_of(kind.type)  # signed: may be below 0
        case inspect.UnionType():
            walks = [_walk_of(each) for each in kind.types]
            return next((walk for walk in walks if walk is not None), None)
        case inspect.StructType() if _numeric(kind.cls):
            return _struct
        case inspect.VarTupleType() if isinstance(kind.item_type, inspect.StructType):
            return _structs if _numeric(kind.item_type.cls) else None
        case inspect.DictType() if _walk_of(kind.value_type) is _number:
            return _entries
        case _:
            return None
