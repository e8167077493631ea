"""Changing several objects: ask where it is hard to take back, edit each, report each result.

One failing object does not keep the others from being changed: the verb goes on, and the first error
is raised at the end. Under `-o json` there is then one document, the error's, which names what was
changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from shoal.cli.connection import connect
from shoal.cli.failures import Declined, Usage
from shoal.cli.output import say, write_document
from shoal.cli.settings import Settings
from shoal.cli.targets import Target, with_nearest
from shoal.objects.errors import ShoalError

__all__ = ["Outcomes", "change_each", "confirm"]

Change = Callable[[Any], Any]


def change_each(
    settings: Settings, named: Sequence[Target], change: Change, *, done: str, already: str
) -> None:
    """Change the spec of each object with `change` (object to object, pure) and report.

    `done` follows the name of an object that was changed (`job/x cancelled`), `already` that of one
    that needed no change.

    Raises:
        ShoalError: the first error, after all objects were tried.
    """
    outcomes = Outcomes(settings, single=len(named) == 1)
    with connect(settings) as client:
        for target in named:
            versions: list[str] = []

            def noting(obj: Any, versions: list[str] = versions) -> Any:
                versions.append(obj.metadata.resource_version)
                return change(obj)

            try:
                after = client.edit(target.kind.struct, target.namespace, target.name, noting)
            except ShoalError as error:
                outcomes.failed(target, with_nearest(client, target, error))
            else:
                changed = after.metadata.resource_version != versions[-1]
                outcomes.done(target, after, done if changed else already)
    outcomes.report()


class Outcomes:
    """Collects, and tells lines as they come. `single`: programs get the object, not a list."""

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
                    self._settings,
                    self._objects[0] if self._single else {"items": self._objects},
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
        raise Usage("there is no terminal to ask on", hint="pass -y to go ahead without asking")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Declined("nothing was changed")
