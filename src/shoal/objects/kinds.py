"""The registry of kinds: every declaration by its name, and the kind that a word means.

A new kind is one module beside this one and one entry in `_DECLARED`. A kind outside this package is
added without a change here: `$SHOAL_KINDS` names modules, separated by commas, that hold a tuple `KINDS`
of declarations (see docs/design/kinds.md). Importing the registry costs a few
milliseconds: every command of the command line does.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from types import MappingProxyType

from shoal.objects.account import TOKEN, USER
from shoal.objects.errors import NotFound
from shoal.objects.experiment import EXPERIMENT
from shoal.objects.job_kind import JOB
from shoal.objects.kind import Column, Kind
from shoal.objects.membership import MEMBERSHIP
from shoal.objects.meta import Object
from shoal.objects.nearest import nearest
from shoal.objects.node import NODE
from shoal.objects.queue import QUEUE
from shoal.objects.secret import SECRET
from shoal.objects.trial import TRIAL

__all__ = [
    "EXPERIMENT",
    "JOB",
    "KINDS",
    "LEASE",
    "MEMBERSHIP",
    "NODE",
    "QUEUE",
    "SECRET",
    "TOKEN",
    "TRIAL",
    "USER",
    "Column",
    "Kind",
    "as_kind",
    "kind_at",
    "kind_called",
    "kind_named",
    "kind_of",
]

LEASE = Kind(name="Lease", plural="leases", struct=Object, namespaced=False, internal=True, stored=False)
"""What access rules call a lease. The store keeps leases apart from objects."""

PLUGINS = "SHOAL_KINDS"
"""The environment variable that names modules with further kinds."""


def _added() -> Iterator[Kind]:
    for module in filter(None, os.environ.get(PLUGINS, "").split(",")):
        yield from importlib.import_module(module).KINDS


_DECLARED = (JOB, QUEUE, NODE, EXPERIMENT, TRIAL, MEMBERSHIP, USER, TOKEN, SECRET, LEASE, *_added())

_BY_NAME = {kind.name: kind for kind in _DECLARED if kind.stored}

KINDS = MappingProxyType({kind.name: kind for kind in _DECLARED if not kind.internal})
"""Every kind that users know, by its name."""


def kind_called(name: str) -> Kind | None:
    """The kind of this name on the wire, internal ones included; None when there is none."""
    return _BY_NAME.get(name)


def kind_named(word: str) -> Kind:
    """The kind that a person or a path means by `word`: its name, plural or an alias, any case.

    Raises:
        NotFound: no kind is called so; the hint names the nearest.
    """
    kind = _BY_WORD.get(word.lower())
    if kind is None:
        near = nearest(word, [kind.plural for kind in KINDS.values()] + list(KINDS))
        known = ", ".join(kind.plural for kind in KINDS.values())
        hint = f"did you mean {near}?" if near else f"the kinds are {known}"
        raise NotFound(f"there is no kind called {word!r}", hint=hint)
    return kind


def kind_at(plural: str) -> Kind:
    """The kind at the path `plural` of the API.

    Raises:
        NotFound: there is none.
    """
    for kind in KINDS.values():
        if kind.plural == plural:
            return kind
    plurals = ", ".join(sorted(kind.plural for kind in KINDS.values()))
    raise NotFound(f"there is nothing at {plural!r}", hint=f"the kinds are {plurals}")


def kind_of(obj: Object | type[Object]) -> Kind:
    """The kind of an object or of its class.

    Raises:
        NotFound: the class is not a registered kind.
    """
    struct = obj if isinstance(obj, type) else type(obj)
    for kind in _BY_NAME.values():
        if kind.struct is struct:
            return kind
    raise NotFound(f"{struct.__name__} is not a registered kind")


def as_kind(kind: Kind | type[Object] | str) -> Kind:
    """The kind that a caller means: a Kind, its class, or its name as `kind_named` takes it.

    Raises:
        NotFound: it is none.
    """
    if isinstance(kind, Kind):
        return kind
    if isinstance(kind, str):
        return kind_named(kind)
    if isinstance(kind, type) and issubclass(kind, Object):  # pyright: ignore[reportUnnecessaryIsInstance]
        return kind_of(kind)
    raise NotFound(f"{kind!r} is not a kind", hint="pass a class such as Job, or a name such as 'job'")


def _words() -> dict[str, Kind]:
    found: dict[str, Kind] = {}
    for kind in KINDS.values():
        for word in (kind.name.lower(), kind.plural, f"{kind.plural}.shoal.dev", *kind.aliases):
            if found.setdefault(word, kind) is not kind:
                raise ValueError(f"the kinds {found[word].name} and {kind.name} are both called {word}")
    return found


_BY_WORD = _words()
