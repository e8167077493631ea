"""The options that verbs share, and the decorator that makes a function a verb.

Common options are accepted before and after the verb (`shoal -n a get jobs`, `shoal get jobs -n a`):
each writes its value into the invocation's `Settings`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from shoal.cli.completion import complete_names
from shoal.cli.settings import OUTPUTS, Settings

__all__ = ["assume_yes", "common", "dry_run", "names_of", "reports", "verb"]

F = TypeVar("F", bound=Callable[..., Any])


def verb(name: str, **attributes: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function the verb `name`; it is called with the Settings first."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        return click.command(name, _Verb, **attributes)(common(click.pass_obj(function)))

    return decorate


class _Verb(click.Command):
    """Its help shows the verb's own options before those that all verbs share."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Two sections of options."""
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                (shared if (parameter.name or "").startswith("_") else own).append(record)
        for title, records in (("Options", own), ("Of every verb", shared)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def common(function: F) -> F:
    """Add the options that every verb takes."""
    for decorate in (
        _stored("--debug", field="debug", is_flag=True, help="Show the traceback of an error."),
        _stored(
            "--home",
            field="home_flag",
            metavar="DIR",
            help="The local cluster's folder; $SHOAL_HOME or ~/.shoal unless given.",
        ),
        _stored(
            "--context",
            field="context_flag",
            metavar="NAME",
            help="Which server to talk to, by its name in ~/.config/shoal/config.toml.",
        ),
        _stored(
            "--namespace",
            "-n",
            field="namespace_flag",
            metavar="NAME",
            help="The team's space; `default` unless given.",
        ),
    ):
        function = decorate(function)
    return function


def reports(function: F) -> F:
    """Add `-o` and `--json`."""
    as_json = _stored("--json", field="output", flag_value="json", help="Short for -o json.")
    output = _stored(
        "--output",
        "-o",
        field="output",
        type=click.Choice(OUTPUTS),
        metavar="FORMAT",
        help="table, wide, json, yaml or name.",
    )
    return output(as_json(function))


def names_of(kind: str, *, single: bool = False) -> Callable[[F], F]:
    """Add the argument `jobs` (or `job`, where `single`) for a kind called `job`."""
    return click.argument(
        kind if single else f"{kind}s",
        nargs=1 if single else -1,
        required=True,
        metavar=kind.upper() if single else f"{kind.upper()}...",
        shell_complete=complete_names(kind),
    )


def assume_yes(function: F) -> F:
    """Add `-y`."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask.")(function)


def dry_run(function: F) -> F:
    """Add `--dry-run`."""
    return click.option("--dry-run", is_flag=True, help="Show what would change, change nothing.")(
        function
    )


def _stored(*names: str, field: str, **attributes: Any) -> Callable[[F], F]:
    def store(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value:  # not given here: leave what was given before the verb
            setattr(context.find_object(Settings), field, value)

    shared = "" if field == "output" else "_"
    return click.option(
        *names, f"{shared}{field}_said", expose_value=False, callback=store, **attributes
    )
