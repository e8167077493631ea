"""Changing what people own of several objects, and saying what became of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shoal.cli.connection import connect
from shoal.cli.outcome import Outcomes
from shoal.cli.settings import Settings
from shoal.cli.targets import Target
from shoal.objects.errors import ShoalError

__all__ = ["change_each"]

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
                outcomes.failed(target, error)
            else:
                changed = after.metadata.resource_version != versions[-1]
                outcomes.done(target, after, done if changed else already)
    outcomes.report()
