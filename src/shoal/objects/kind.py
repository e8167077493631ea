"""What a kind is: one declaration, from which everything that handles objects follows.

A `Kind` names its Struct (fields, defaults, types, docstrings) and adds what types cannot say: rules
between fields, which fields may change, columns, the sections of `describe`, the state that `explain`
shows, how an object of it ends, and which verbs it supports. Storage, the HTTP API, the command line,
schemas and the reference page handle every kind alike; its controller acts on
the objects. A checklist for a new kind is in docs/design/kinds.md.

Hooks are pure functions of objects. A hook with a large module imports it when it is called: every
command of the command line loads the declarations of all kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from shoal.objects.columns import Column
from shoal.objects.meta import Object, Stamp
from shoal.objects.paths import Finding, Path

__all__ = [
    "Column",
    "Description",
    "Kind",
    "Outcome",
    "Reference",
    "Section",
    "Size",
    "State",
    "Verb",
]


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


def _never(_obj: Any) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class State:
    """What an object is doing and why. Empty fields: there is nothing to say."""

    phase: str = ""
    code: str = ""
    """Why it is in this phase, in CamelCase, for programs."""
    message: str = ""
    """The same in one sentence."""
    remedy: str = ""
    """What would change it."""
    evidence: Mapping[str, Any] = field(default_factory=_nothing)
    """The numbers behind the code."""
    since: Stamp = 0.0
    starts: Stamp | None = None
    """When it starts at the latest, where that is promised."""
    scheduler: bool = False
    """The code and the evidence are the scheduler's."""
    queued: bool = False
    """It waits for capacity, and objects that are tried before it may be named."""
    size: Size | None = None


@dataclass(frozen=True)
class Size:
    """An object that holds `held` of at most `most` parts; `unit` names them."""

    held: int
    most: int
    unit: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How an object ended: what `wait` and `run` turn into exit codes and a sentence."""

    result: Literal["succeeded", "failed", "cancelled"]
    started: Stamp = 0.0
    """0: it ended before it started."""
    finished: Stamp = 0.0
    message: str = ""
    """Why, where it failed."""
    exit_code: int | None = None
    """Of the process that decided, where there is one."""


@dataclass(frozen=True)
class Reference:
    """That the field at `path` names the object `name` of a kind, which has to exist first."""

    path: Path
    kind: str
    name: str


@dataclass(frozen=True)
class Verb:
    """A verb that a kind supports: a pure edit of the object, so that every client does it alike.

    `edit(object, **options)` gives the object with another spec, or the same one if nothing changes.
    """

    edit: Callable[..., Any]
    done: str
    """Follows the name of an object that was changed: `job/x is being cancelled`."""
    already: str
    """Follows the name of an object that needed no change."""
    restarts: Callable[[Any], bool] = _never
    """Whether the verb restarts everything that runs for the object now: a caller asks first."""


@dataclass(frozen=True)
class Section:
    """One table of `describe`."""

    title: str
    titles: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Description:
    """What `describe` shows of an object, apart from its labels, conditions, tasks and events."""

    lines: Sequence[tuple[str, str]]
    """Name and value; an empty name continues the line before."""
    sections: Sequence[Section] = ()
    facts: Mapping[str, Any] = field(default_factory=_nothing)
    """Added to the document under `-o json`: what was computed from other objects."""


def _no_findings(*_objects: Any) -> Iterable[Finding]:
    return ()


def _no_references(_obj: Any) -> Iterable[Reference]:
    return ()


def _state(obj: Any) -> State:
    """From the fields that a status usually has."""
    status: Any = obj.status
    named = {name: getattr(status, name, "") for name in ("phase", "reason", "message")}
    return State(phase=named["phase"], code=named["reason"], message=named["message"])


@dataclass(frozen=True, eq=False, kw_only=True)
class Kind:
    """One kind. Kinds are singletons: equal when identical, and usable as keys."""

    name: str
    """Singular CamelCase, as on the wire."""
    plural: str
    """Lower case: the path of the API, and the name on the command line."""
    struct: type[Object]
    aliases: tuple[str, ...] = ()
    """Short names for the command line."""
    namespaced: bool = True
    internal: bool = False
    """The platform's own: stored like any object, but not in the API, on the command line or in docs."""
    stored: bool = True
    """False: only access rules name it, and there are no objects of it."""
    status_writers: Mapping[str, tuple[str, ...]] = field(default_factory=_nothing)
    """Writer to the status fields (wire names) that it owns; `*` is every field that no other owns,
    except `writers`, which is the store's."""

    check: Callable[[Any], Iterable[Finding]] = _no_findings
    """Everything wrong with an object that has the right types."""
    check_change: Callable[[Any, Any], Iterable[Finding]] = _no_findings
    """Which changes of spec from the stored object (with its status) to a new one are refused."""
    check_status: Callable[[Any, bytes], Iterable[Finding]] = _no_findings
    """Everything wrong with the fields of a status patch that have the right types, beside the stored
    spec (JSON). Numbers below 0 are refused for every kind."""
    references: Callable[[Any], Iterable[Reference]] = _no_references

    columns: tuple[Column, ...] = ()
    """The first is the name."""
    table: Callable[[Sequence[Any], Sequence[Any], float, bool], Section] | None = None
    """The table of the objects shown (the first argument), where a row depends on all objects of the
    kind (the second), as in a tree; at a time, wide or not. Absent: a row is its columns' values."""
    describe: Callable[[Any, Sequence[Any], float], Description] | None = None
    """Of an object, beside all objects of the kind where `table` is present, at a time. Absent: the
    columns, and every field of spec."""
    tasks: Literal["none", "owned", "hosted"] = "none"
    """Whether an object runs tasks under its name (a job), or tasks of others run on it (a node)."""

    phases: tuple[str, ...] = ()
    """What `status.phase` may be, for `wait --for phase=`."""
    state: Callable[[Any], State] = _state
    outcome: Callable[[Any], Outcome | None] | None = None
    """How an object ended; None while it has not. Absent: objects of the kind do not end."""
    verbs: Mapping[str, Verb] = field(default_factory=_nothing)
    """The verbs that change the state of an object, by name."""

    def finished(self, obj: Any) -> bool:
        """Whether the object has ended and will not change its phase any more."""
        return self.outcome is not None and self.outcome(obj) is not None

    def spell(self, name: str) -> str:
        """How an object is written on the command line and in messages: `job/x`."""
        return f"{self.name.lower()}/{name}"
