"""The registry of kinds: what each is called, whether it lives in a namespace, and its columns.

A new kind is one entry here and one module beside this one. Importing it costs a few milliseconds:
every command of the command line does.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from shoal.objects.columns import JOB_COLUMNS, NODE_COLUMNS, QUEUE_COLUMNS, Column
from shoal.objects.errors import NotFound
from shoal.objects.job import Job
from shoal.objects.membership import Membership
from shoal.objects.meta import Object
from shoal.objects.nearest import nearest
from shoal.objects.node import Node
from shoal.objects.queue import Queue

__all__ = [
    "JOB",
    "KINDS",
    "MEMBERSHIP",
    "NODE",
    "QUEUE",
    "Column",
    "Kind",
    "kind_called",
    "kind_named",
    "kind_of",
]


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind: `name` is singular CamelCase as on the wire, `plural` its path and CLI name.

    Kinds are singletons: equal when identical, and usable as keys.
    """

    name: str
    plural: str
    aliases: tuple[str, ...]
    namespaced: bool
    struct: type[Object]
    columns: tuple[Column, ...]
    status_writers: dict[str, tuple[str, ...]]
    """Writer to the status fields (wire names) that it owns; `*` is every field no other owns, but
    for `writers`, which is the store's."""


JOB = Kind(
    name="Job",
    plural="jobs",
    aliases=("j", "sjob"),
    namespaced=True,
    struct=Job,
    columns=JOB_COLUMNS,
    status_writers={
        "scheduler": ("allocation", "scheduling"),
        "elastic": ("elastic",),
        "job": ("*",),
    },
)
QUEUE = Kind(
    name="Queue",
    plural="queues",
    aliases=("q",),
    namespaced=False,
    struct=Queue,
    columns=QUEUE_COLUMNS,
    status_writers={"queue": ("*",)},
)
NODE = Kind(
    name="Node",
    plural="nodes",
    aliases=("no",),
    namespaced=False,
    struct=Node,
    columns=NODE_COLUMNS,
    status_writers={"node": ("*",)},
)

MEMBERSHIP = Kind(
    name="Membership",
    plural="memberships",
    aliases=(),
    namespaced=True,
    struct=Membership,
    columns=(),
    status_writers={},
)
"""The platform's own: kept like any object, but nobody's to write, so no registry or address has it."""

KINDS = MappingProxyType({kind.name: kind for kind in (JOB, QUEUE, NODE)})
"""Every kind that people know, by its name."""


def kind_called(name: str) -> Kind | None:
    """The kind of this name on the wire, the platform's own included; None when there is none."""
    return MEMBERSHIP if name == MEMBERSHIP.name else KINDS.get(name)


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


def kind_of(obj: Object | type[Object]) -> Kind:
    """The kind of an object or of its class.

    Raises:
        NotFound: the class is no registered kind.
    """
    struct = obj if isinstance(obj, type) else type(obj)
    for kind in (*KINDS.values(), MEMBERSHIP):
        if kind.struct is struct:
            return kind
    raise NotFound(f"{struct.__name__} is no registered kind")


_BY_WORD = {
    word: kind
    for kind in KINDS.values()
    for word in (kind.name.lower(), kind.plural, f"{kind.plural}.shoal.dev", *kind.aliases)
}
