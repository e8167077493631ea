"""The environment of a task of `shoal run`: what is passed on by itself, then what `--env` says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.cli.failures import Usage
from shoal.client.environment import passed_on

__all__ = ["task_environment"]


def task_environment(
    caller: Mapping[str, str], said: Iterable[tuple[str, str | None]]
) -> dict[str, str]:
    """The variables of a task: those passed on by default, then what `--env` says.

    `said` holds (name, value), and (name, None) for a variable of the caller's to pass on.

    Raises:
        Usage: a variable is to be passed on that the caller does not have.
    """
    passed = passed_on(caller)
    for name, value in said:
        if value is None and name not in caller:
            raise Usage(
                f"--env {name}: there is no such variable here", hint=f"write --env {name}=VALUE"
            )
        passed[name] = caller[name] if value is None else value
    return passed
