"""The options that verbs share, what may stand in an option, and the decorator that makes a verb.

Common options are accepted before and after the verb (`shoal -n a get jobs`, `shoal get jobs -n a`):
each writes its value into the invocation's `Settings`. Wrong values of durations, cores, sizes and
counts are reported as Click reports them, with the option's name.

Live completion lists what the server has, quickly or not at all. It must never hang a shell nor write
into the line being typed, so it has 300 ms in all (or `$SHOAL_COMPLETION_SECONDS`): a timer ends the
process, and every error means "no suggestions"."""

from __future__ import annotations

import importlib
import math
import os
import signal
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shoal.cli.settings import OUTPUTS, Settings
from shoal.objects.errors import Invalid
from shoal.objects.quantities import Bytes, CpuMillis, QuantityError, Seconds

F = TypeVar("F", bound=Callable[..., Any])
MAX_SECONDS = 0.3
_MOST = 500

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


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
            help="The local cluster's folder; $SHOAL_HOME or ~/.shoal by default.",
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
            help="The team's space; `default` by default.",
        ),
    ):
        function = decorate(function)
    return function


def reports(function: F) -> F:
    """Add `-o` and `--json`."""
    return _output(function, tuple(each for each in OUTPUTS if each != "csv"))


def tabular(function: F) -> F:
    """Add `-o` with `csv`, and `--json`: for verbs whose report is one table of values."""
    return _output(function, ("table", "json", "csv"))


def _output(function: F, formats: tuple[str, ...]) -> F:
    as_json = _stored("--json", field="output", flag_value="json", help="Short for -o json.")
    output = _stored(
        "--output",
        "-o",
        field="output",
        type=click.Choice(formats),
        metavar="FORMAT",
        help=f"{', '.join(formats[:-1])} or {formats[-1]}.",
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


def listed_option(*names: str, of: str, help: str, **attributes: Any) -> Callable[[F], F]:  # noqa: A002
    """Add an option that takes names of the list `of` (`module:attribute`), which its help ends with."""
    return click.option(*names, cls=_Listed, of=of, help=help, **attributes)


class _Listed(click.Option):
    """Imports the module of the list when its help is shown, not before."""

    def __init__(self, *names: Any, of: str, **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self._of = of.split(":")

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """With all names at the end."""
        record = super().get_help_record(ctx)
        listed: Iterable[str] = getattr(importlib.import_module(self._of[0]), self._of[1])
        return record and (record[0], f"{record[1]} {', '.join(listed)}.")


def _stored(*names: str, field: str, **attributes: Any) -> Callable[[F], F]:
    def store(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value:  # not given here: leave what was given before the verb
            setattr(context.find_object(Settings), field, value)

    shared = "" if field == "output" else "_"
    return click.option(
        *names, f"{shared}{field}_said", expose_value=False, callback=store, **attributes
    )


if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # takes a type argument only in newer versions


class _Parsed(_ParamType):
    """A parameter read by a function that raises ValueError."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text; a value that is no text is one already."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except (QuantityError, ValueError) as error:
            self.fail(str(error), param, ctx)


def _moment(text: str) -> float:
    """Seconds since 1970: `10m` is ten minutes ago, otherwise an ISO 8601 date and time."""
    try:
        return time.time() - Seconds.parse(text)
    except QuantityError:
        from datetime import datetime

        try:
            return datetime.fromisoformat(text).timestamp()
        except ValueError:
            raise ValueError(
                f"{text!r} is neither a length of time such as 10m nor a time such as 2026-05-01T09:30"
            ) from None


def _key_value(text: str) -> tuple[str, str | None]:
    key, equals, value = text.partition("=")
    if not key:
        raise ValueError(f"{text!r} is not NAME=VALUE or NAME")
    return key, value if equals else None


def _indices(text: str) -> tuple[str, int | None]:
    """`0-99%10` as the indices and how many at once."""
    from shoal.objects.ranges import IndexSet

    indices, percent, at_once = text.partition("%")
    if percent and not (at_once.isdecimal() and int(at_once)):
        raise ValueError(f"{text!r}: after % stands how many run at once, such as 0-99%10")
    parsed = IndexSet.parse(indices)
    if not len(parsed):
        raise ValueError(f"{text!r} holds no index; write them such as 0-99 or 0-99%10")
    return parsed.text, int(at_once) if percent else None


def whole(least: int, most: int = 1_000_000) -> click.ParamType[int]:
    """A whole number; Click's own ranges spell themselves out in every line of help."""

    def read(text: str) -> int:
        wanted = f"a whole number from {least} to {most}"
        try:
            number = int(text)
        except ValueError:
            raise ValueError(f"{text!r} is not {wanted}") from None
        if not least <= number <= most:
            raise ValueError(f"{number} is not {wanted}")
        return number

    return _Parsed("n", read)


def _devices(text: str) -> float:
    from shoal.client.submit import devices

    try:
        number = float(text)
        devices(number)
    except (ValueError, Invalid):
        said = f"{text!r} is neither a whole number of GPUs nor a part of one, such as 0.5"
        raise ValueError(said) from None
    return number


def _checked(check: str) -> Callable[[str], str]:
    """The text as it is, if the function of that name in `shoal.client.submit` can read it."""

    def read(text: str) -> str:
        from shoal.client import submit

        try:
            getattr(submit, check)(text)
        except Invalid as error:
            raise ValueError(f"{error.message}; {error.hint}" if error.hint else error.message) from None
        return text

    return read


def _hours(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{text!r} is not a number of hours above 0")
    return number


def _priority(text: str) -> int | str:
    from shoal.objects.job import PRIORITIES

    if text in PRIORITIES:
        return text
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a number nor one of {', '.join(PRIORITIES)}") from None


DURATION = _Parsed("duration", Seconds.parse)
CPU = _Parsed("cores", CpuMillis.parse)
MEMORY = _Parsed("size", Bytes.parse)
MOMENT = _Parsed("time", _moment)
KEY_VALUE = _Parsed("name[=value]", _key_value)
INDICES = _Parsed("indices", _indices)
DEPENDENCY = _Parsed("job", _checked("dependency_of"))
SECRET = _Parsed("secret", _checked("secret_use_of"))
DEVICES = _Parsed("devices", _devices)
HOURS = _Parsed("hours", _hours)
PRIORITY = _Parsed("priority", _priority)


def complete_names(kind: str, *, prefixed: bool = True) -> Completer:
    """A completer of the names of one kind: `job/x`, or plain names when typed so."""

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        if "/" in incomplete:
            return _prefixed(context, incomplete)
        plain = _names(context, kind, incomplete)
        return [f"{kind}/{name}" for name in plain] if prefixed and not incomplete else plain

    return complete


def complete_kinds_and_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """A completer for `get`: kinds first, then names of the kind that was given."""
    if "/" in incomplete:
        return _prefixed(context, incomplete)
    from shoal.objects.kinds import KINDS

    given: Any = context.params.get(parameter.name or "") or ()
    if given and "/" not in given[0]:
        return _names(context, given[0], incomplete)
    words = [word for kind in KINDS.values() for word in (kind.plural, f"{kind.name.lower()}/")]
    return [word for word in words if word.startswith(incomplete)]


def _prefixed(context: click.Context, incomplete: str) -> list[str]:
    prefix, _, begun = incomplete.partition("/")
    return [f"{prefix}/{name}" for name in _names(context, prefix, begun)]


def _names(context: click.Context, word: str, begun: str) -> list[str]:
    settings = context.find_object(Settings) or Settings()
    try:
        _end_in_time()
        from shoal.cli.settings import connect
        from shoal.objects.kinds import kind_named

        kind = kind_named(word)
        namespace = settings.namespace if kind.namespaced else ""
        with connect(settings) as client:
            page = client.list(kind, namespace=namespace, limit=_MOST)
        names = [record.identity.name for record in page.records]
    except Exception:  # noqa: BLE001  whatever is wrong, a shell's prompt is no place to say so
        return []
    return [name for name in names if name.startswith(begun)]


def _end_in_time() -> None:
    """Leave, without a word, once the time since this process began is used up."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        os._exit(0)

    signal.signal(signal.SIGALRM, leave)
    seconds = float(os.environ.get("SHOAL_COMPLETION_SECONDS", MAX_SECONDS))
    signal.setitimer(signal.ITIMER_REAL, max(0.05, seconds - time.process_time()))
