"""`shoal wait`: until jobs have finished, or another thing is so of an object."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click

from shoal.cli.failures import (
    INTERRUPTED,
    JobNotFinished,
    JobNotFound,
    TimedOut,
    Usage,
    outcome_code,
    sentence,
)
from shoal.cli.options import DURATION, complete_kinds_and_names, reports, verb
from shoal.cli.output import say, write_document
from shoal.cli.settings import Settings, connect
from shoal.cli.targets import Target, targets
from shoal.client import Client
from shoal.objects.errors import NotFound
from shoal.objects.kinds import JOB, Kind, kind_of

_WHATS = "finished, deleted, phase=PHASE or condition=TYPE[=True|False]"


@verb("wait")
@click.argument(
    "objects", nargs=-1, required=True, metavar="[KIND/]NAME...", shell_complete=complete_kinds_and_names
)
@click.option("--for", "what", default="finished", metavar="WHAT", help=f"What to wait for: {_WHATS}.")
@click.option("--timeout", type=DURATION, help="Give up after this long, such as 10m; otherwise never.")
@reports
def command(settings: Settings, objects: tuple[str, ...], what: str, timeout: float | None) -> int:
    """Wait until jobs have finished, or something else is so.

    Of jobs, the exit code says how they ended: 0 all succeeded, 100 one failed, 103 one was cancelled,
    102 one is not there, 101 not finished within --timeout. Other waits that time out end with 7.
    Ctrl-C only stops waiting.
    """
    named = targets(objects, settings, JOB)
    for target in named:
        if (what == "finished" and target.kind.outcome is None) or (
            what.startswith("phase=") and not target.kind.phases
        ):
            does = "finish" if what == "finished" else "have a phase"
            raise Usage(f"{target.kind.plural} do not {does}", hint=f"wait for {_WHATS}")
    conditions = {target.kind: _condition(target.kind, what) for target in named}
    if not named:
        raise Usage("name what to wait for", hint="such as: shoal wait job/train")
    deadline = None if timeout is None else time.monotonic() + timeout
    found: list[Any] = []
    codes: list[int] = []
    with connect(settings) as client:
        for target in named:
            try:
                obj = _wait(client, target, conditions[target.kind], deadline)
            except TimeoutError:
                raise _timed_out(target, what, timeout or 0.0) from None
            except KeyboardInterrupt:
                again = " ".join(str(each) for each in named)
                again += "" if what == "finished" else f" --for {what}"
                say(f"\nnothing was changed; wait again with: {settings.spelt(f'wait {again}')}")
                return INTERRUPTED
            if obj is None and what != "deleted":
                missing = JobNotFound if target.kind.outcome is not None else NotFound
                raise missing(f"there is no {target}{_in(target)}")
            found.append(obj)
            codes.append(_code(obj, what))
            if not settings.machine_readable:
                print(f"{target} {_told(obj, what)}", flush=True)
            elif settings.output == "name":
                print(target, flush=True)
    if settings.output in ("json", "yaml"):
        write_document(settings, found[0] if len(found) == 1 else {"items": found})
    return next((code for code in codes if code), 0)


def _condition(kind: Kind, what: str) -> Callable[[Any], bool]:
    """Whether an object (None: gone) is as `--for` says, or cannot become so any more."""
    word, _, value = what.partition("=")
    if what == "finished":
        return lambda obj: obj is None or kind.finished(obj)
    if what == "deleted":
        return lambda obj: obj is None
    if word == "phase" and value in kind.phases:
        return lambda obj: obj is None or obj.status.phase == value or kind.finished(obj)
    if word == "condition" and value:
        name, _, status = value.partition("=")
        wanted = (status or "True").capitalize()
        return lambda obj: (
            obj is None or any(c.type == name and c.status == wanted for c in obj.status.conditions)
        )
    near = f"; the phases are {', '.join(kind.phases)}" if word == "phase" else ""
    raise Usage(f"--for {what} is nothing to wait for{near}", hint=f"wait for {_WHATS}")


def _wait(
    client: Client, target: Target, condition: Callable[[Any], bool], deadline: float | None
) -> Any:
    left = None if deadline is None else max(0.001, deadline - time.monotonic())
    return client.wait(target.kind.struct, target.namespace, target.name, condition, left)


def _timed_out(target: Target, what: str, timeout: float) -> TimedOut:
    failure = JobNotFinished if what == "finished" else TimedOut
    return failure(
        f"{target} is not {what.rpartition('=')[2]} after {timeout:g}s",
        hint=f"see why with: shoal explain {target}",
    )


def _in(target: Target) -> str:
    return f" in namespace {target.namespace}" if target.namespace else ""


def _code(obj: Any, what: str) -> int:
    """0 when it is as asked. An object that finished otherwise than asked cannot become so any more."""
    if what.startswith("condition") or what == "deleted":
        return 0
    if what.startswith("phase=") and obj.status.phase == what.removeprefix("phase="):
        return 0
    return outcome_code(obj)


def _told(obj: Any, what: str) -> str:
    if obj is None:
        return "is deleted"
    if kind_of(obj).finished(obj):
        return sentence(obj, time.time())
    return f"is {what.rpartition('=')[2]}"
