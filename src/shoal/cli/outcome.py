"""What became of each of several objects that a verb changed, and how it is told.

One failing object does not keep the others from being changed: the verb goes on, and the first error
is raised at the end. Under `-o json` there is then one document, the error's, which names what was
changed.
"""

from __future__ import annotations

from typing import Any

from shoal.cli.output import say, write_document
from shoal.cli.settings import Settings
from shoal.cli.targets import Target
from shoal.objects.errors import ShoalError

__all__ = ["Outcomes"]


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
