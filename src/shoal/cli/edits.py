"""Changing several objects: ask where it is hard to take back, edit each, report each result.

One failing object does not keep the others from being changed: the verb goes on, and the first error
is raised at the end. Under `-o json` there is then one document, the error's, which names what was
changed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from shoal.cli.failures import Declined, Usage
from shoal.cli.output import say, write_document
from shoal.cli.settings import Settings, connect
from shoal.cli.targets import Target, targets, with_nearest
from shoal.objects.errors import ShoalError
from shoal.objects.kind import Kind, Verb
from shoal.objects.kinds import KINDS


def supporting(words: Sequence[str], settings: Settings, verb: str, default: Kind) -> list[Target]:
    """At least one object, all of kinds that support the verb; a plain name is one of the default kind.

    Raises:
        Usage: none is named, or one of a kind that does not support the verb.
    """
    named = targets(words, settings, default)
    if not named:
        raise Usage(f"name a {default.name.lower()}", hint=f"`shoal get {default.plural}` lists them")
    able = ", ".join(kind.plural for kind in KINDS.values() if verb in kind.verbs)
    for target in named:
        if verb not in target.kind.verbs:
            raise Usage(f"{target.kind.plural} do not support {verb}", hint=f"{verb} is for {able}")
    return named


def change_each(settings: Settings, named: Sequence[Target], verb: str, **options: Any) -> None:
    """Change the spec of each object as its kind's verb says, with these options, and report.

    Raises:
        ShoalError: the first error, after all objects were tried.
    """
    outcomes = Outcomes(settings, single=len(named) == 1)
    with connect(settings) as client:
        for target in named:
            declared = target.kind.verbs[verb]
            versions: list[str] = []

            def noting(obj: Any, declared: Verb = declared, versions: list[str] = versions) -> Any:
                versions.append(obj.metadata.resource_version)
                return declared.edit(obj, **options)

            try:
                after = client.edit(target.kind.struct, target.namespace, target.name, noting)
            except ShoalError as error:
                outcomes.failed(target, with_nearest(client, target, error))
            else:
                changed = after.metadata.resource_version != versions[-1]
                outcomes.done(target, after, declared.done if changed else declared.already)
    outcomes.report()


class Outcomes:
    """Collects results and prints each as it comes. `single`: programs get the object, not a list."""

    def __init__(self, settings: Settings, *, single: bool) -> None:
        self._settings = settings
        self._single = single
        self._objects: list[Any] = []
        self._changed: list[str] = []
        self._failures: list[tuple[Target, ShoalError]] = []

    def done(self, target: Target, obj: Any, word: str) -> None:
        """The object as it is now; `word` follows its name (`job/x cancelled`)."""
        self._objects.append(obj)
        self._changed.append(str(target))
        if self._settings.output == "name":
            print(target, flush=True)
        elif not self._settings.machine_readable:
            print(f"{target} {word}", flush=True)

    def failed(self, target: Target, error: ShoalError) -> None:
        """It could not be done."""
        self._failures.append((target, error))

    def report(self) -> None:
        """Write the document for programs, or raise the first error.

        Raises:
            ShoalError: an object failed.
        """
        if not self._failures:
            if self._settings.output in ("json", "yaml"):
                write_document(
                    self._settings, self._objects[0] if self._single else {"items": self._objects}
                )
            return
        for target, error in self._failures[1:]:
            say(f"error: {target}: {error.message}")
        first = self._failures[0][1]
        if self._changed:
            first.details = {**first.details, "changed": self._changed}
        raise first


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal; returns when the answer is yes.

    Raises:
        Declined: the answer is no.
        Usage: there is no terminal to ask on, and `-y` was not given.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise Usage(
            f"there is no terminal to ask on: {question}", hint="pass -y to go ahead without asking"
        )
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Declined("nothing was changed")
