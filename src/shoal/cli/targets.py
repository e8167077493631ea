"""Which objects a person means: `job/x`, `jobs a b`, or plain `x` where a verb is about one kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shoal.cli.failures import Usage
from shoal.cli.output import decoded
from shoal.cli.settings import Settings
from shoal.client import Client
from shoal.objects.errors import NotFound, ShoalError
from shoal.objects.kinds import Kind, kind_named
from shoal.objects.nearest import nearest

_MOST_NAMES = 1000
"""Names that are compared with a mistyped one."""


@dataclass(frozen=True)
class Target:
    """One object, by kind, namespace (empty for cluster-wide kinds) and name."""

    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        return spelt(self.kind, self.name)


def spelt(kind: Kind, name: str) -> str:
    """How an object is written on the command line: `job/x`."""
    return kind.spell(name)


def targets(words: Sequence[str], settings: Settings, default: Kind | None = None) -> list[Target]:
    """The objects that `words` name. Without a default kind the first word may be a kind, and the
    others its objects; a kind alone names none.

    Raises:
        Usage: a word names nothing.
        NotFound: no kind is called so.
    """
    kind = default
    if kind is None and words and "/" not in words[0]:
        kind, words = _kind(words), words[1:]
    found: list[Target] = []
    for word in words:
        prefix, slash, name = word.partition("/")
        of = kind_named(prefix) if slash else kind
        if of is None or not (name if slash else word) or "/" in name:
            raise Usage(f"{word!r} names no object", hint="write KIND/NAME, such as job/train")
        namespace = settings.namespace if of.namespaced else ""
        found.append(Target(of, namespace, name if slash else word))
    return list(dict.fromkeys(found))


def several(words: Sequence[str], settings: Settings, kind: Kind) -> list[Target]:
    """At least one object, all of one kind.

    Raises:
        Usage: none is named, or one of another kind.
    """
    found = targets(words, settings, kind)
    if not found:
        raise Usage(f"name a {kind.name.lower()}", hint=f"`shoal get {kind.plural}` lists them")
    for target in found:
        if target.kind is not kind:
            raise Usage(f"{target} is not a {kind.name.lower()}")
    return found


def one(word: str, settings: Settings, kind: Kind) -> Target:
    """Exactly this object, which must be of the kind."""
    return several([word], settings, kind)[0]


def existing(client: Client, target: Target) -> Any:
    """The object.

    Raises:
        NotFound: it is not there; the hint names the nearest that is.
    """
    try:
        return client.record(target.kind, target.namespace, target.name).object
    except NotFound as error:
        raise with_nearest(client, target, error) from error


def beside(client: Client, kind: Kind, read: Sequence[Any]) -> list[Any]:
    """All objects of the kind; those that were read before as they were then."""
    there = {obj.key: obj for obj in decoded(client.list(kind).records)}
    return list((there | {obj.key: obj for obj in read}).values())


def with_nearest(client: Client, target: Target, error: ShoalError) -> ShoalError:
    """The error; where it says that the target is not there, with the nearest name as its hint."""
    if isinstance(error, NotFound) and not error.hint:
        page = client.list(target.kind, namespace=target.namespace, limit=_MOST_NAMES)
        near = nearest(target.name, [record.identity.name for record in page.records])
        lists = f"`shoal get {target.kind.plural}` lists them"
        error.hint = f"did you mean {spelt(target.kind, near)}?" if near else lists
    return error


def _kind(words: Sequence[str]) -> Kind:
    """The kind that the first word names; a single word that names none may be an object's name."""
    try:
        return kind_named(words[0])
    except NotFound as error:
        if len(words) == 1:
            error.hint = f"for a job of this name write job/{words[0]}; {error.hint}"
        raise
