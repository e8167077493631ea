"""Objects from files: a file, all of a folder's, or standard input; every problem of all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.cli.failures import Usage
from shoal.cli.output import say
from shoal.cli.settings import Settings
from shoal.objects.errors import Invalid, Problem
from shoal.objects.kinds import KINDS, kind_of
from shoal.objects.meta import Object
from shoal.objects.paths import spell

if TYPE_CHECKING:
    from shoal.objects.yaml import Located

_Identity = tuple[str, tuple[str, str]]
"""Kind, and key."""
_Circle = tuple[_Identity, str, str]
"""The object at which a circle of references is reported, the field, and what is wrong with it."""
_ENDINGS = (".yaml", ".yml", ".json")


def read_manifests(sources: Iterable[str], settings: Settings) -> list[Located]:
    """The objects of all sources, those that others refer to first.

    Raises:
        Usage: a source is not there.
        Invalid: with everything that is wrong in any of them.
    """
    from shoal.objects.yaml import LARGEST_FILE, load_located

    located: list[Located] = []
    problems: list[Problem] = []
    errors: list[Invalid] = []
    seen: dict[tuple[str, tuple[str, str]], str] = {}
    namespace = (
        "" if settings.namespace == "default" and not settings.namespace_flag else settings.namespace
    )
    for name, text in _texts(sources, LARGEST_FILE):
        try:
            found = load_located(text, name, namespace=namespace, foreign=_own)
        except Invalid as error:
            errors.append(error)
            problems += [_in_file(name, problem) for problem in error.problems] or [
                Problem("", error.message)
            ]
            continue
        for obj, _, _ in found:
            first = seen.setdefault((kind_of(obj).name, obj.key), name)
            if first != name:
                problems.append(
                    Problem("", f"{obj.kind} {obj.metadata.name} is in {first} already", file=name)
                )
        located += found
    depths, circles = _referred([each.object for each in located])
    problems += [Problem(path, message, file=seen[identity]) for identity, path, message in circles]
    if len(errors) == 1 and len(problems) == 1:
        raise errors[0]
    if len(problems) == 1:
        raise Invalid(str(problems[0]), tuple(problems))
    if problems:
        raise Invalid(f"the files have {len(problems)} problems; nothing was changed", tuple(problems))
    if not located:
        raise Usage(f"there is no object in {', '.join(sources)}")
    # what others refer to comes first
    return sorted(
        located, key=lambda each: (kind_of(each.object).namespaced, depths[_identity(each.object)])
    )


def _own(document: Any) -> Any:
    """The document of Shoal for one of another system; what is different is said on stderr."""
    from shoal.compat import converted, is_foreign

    if not is_foreign(document):
        return document
    made = converted(document)
    for note in made.notes:
        say(f"{document['kind']} {made.document['metadata'].get('name', '')}: {note}")
    return made.document


def _referred(objects: list[Object]) -> tuple[dict[_Identity, int], list[_Circle]]:
    """How long the chain of references from each object to others of these is, and each circle of
    references."""
    by_identity = {_identity(obj): obj for obj in objects}
    depths: dict[_Identity, int] = {}
    circles: list[_Circle] = []

    def depth(obj: Object, chain: tuple[Object, ...]) -> int:
        identity = _identity(obj)
        if identity in depths:
            return depths[identity]
        chain, found = (*chain, obj), 0
        for each in kind_of(obj).references(obj):
            namespace = obj.metadata.namespace if KINDS[each.kind].namespaced else ""
            other = by_identity.get((each.kind, (namespace, each.name)))
            if other in chain:
                circles.append(_circle(chain[chain.index(other) :], spell(each.path)))
            elif other is not None:
                found = max(found, 1 + depth(other, chain))
        depths[identity] = found
        return found

    for obj in objects:
        depth(obj, ())
    return depths, circles


def _circle(chain: tuple[Object, ...], path: str) -> _Circle:
    """The circle, reported at the first of its objects by name."""
    start = min(range(len(chain)), key=lambda at: chain[at].metadata.name)
    turned = (*chain[start:], *chain[:start], chain[start])
    names = " -> ".join(str(kind_of(obj).spell(obj.metadata.name)) for obj in turned)
    return _identity(chain[start]), path, f"refers to itself: {names}"


def _identity(obj: Object) -> _Identity:
    return kind_of(obj).name, obj.key


def _texts(sources: Iterable[str], largest: int) -> Iterator[tuple[str, bytes]]:
    for source in dict.fromkeys(sources):
        if source == "-":
            yield "standard input", sys.stdin.buffer.read(largest + 1)
            continue
        path = Path(source)
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.suffix in _ENDINGS and p.is_file())
            if not files:
                raise Usage(f"{source} holds no file that ends in {', '.join(_ENDINGS)}")
        else:
            files = [path]
        for file in files:
            yield str(file), _read(file, largest)


def _read(file: Path, largest: int) -> bytes:
    """At most one byte more than is allowed, so that a huge file costs no memory to refuse."""
    try:
        with file.open("rb") as stream:
            return stream.read(largest + 1)
    except OSError as error:
        raise Usage(f"{file} cannot be read: {error.strerror}") from error


def _in_file(name: str, problem: Problem) -> Problem:
    return Problem(problem.path, problem.message, problem.line, problem.column, file=name)
