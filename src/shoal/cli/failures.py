"""How an error is reported: a sentence and a hint on stderr, a document on stdout for programs, a code;
and what the end of an object means for a shell: a code per outcome, and a sentence.

| exit code | meaning |
| --- | --- |
| 0, 1, 2 | done; failed; the command line or an object is wrong |
| 3, 4, 5 | not found; conflict or exists already; not allowed |
| 6, 7 | the server cannot be reached; timed out waiting |
| 100, 101, 102, 103 | the job failed; has not finished; is not found; was cancelled |
| 130 | left with Ctrl-C |
"""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from shoal.cli.settings import Settings
from shoal.objects.errors import NotFound, Problem, ShoalError

JOB_FAILED, JOB_NOT_FINISHED, JOB_NOT_FOUND, JOB_CANCELLED = 100, 101, 102, 103
INTERRUPTED = 130
_CODES = {"succeeded": 0, "failed": JOB_FAILED, "cancelled": JOB_CANCELLED}


class Usage(ShoalError):
    """The words on the command line make no sense together."""

    code = "Usage"
    exit_code = 2


class Declined(ShoalError):
    """The person said no."""

    code = "Declined"
    exit_code = 1


class TimedOut(ShoalError):
    """What was waited for did not come in time."""

    code = "TimedOut"
    exit_code = 7


class JobNotFinished(TimedOut):
    """As TimedOut, of a job's end."""

    code = "NotFinished"
    exit_code = JOB_NOT_FINISHED


class JobNotFound(NotFound):
    """As NotFound, for verbs with the exit code of a job's outcome."""

    exit_code = JOB_NOT_FOUND


class CommandNotFound(ShoalError):
    """What is to be run is nowhere on PATH; shells say 127."""

    code = "CommandNotFound"
    exit_code = 127


class NotExecutable(ShoalError):
    """What is to be run is a file, but no program; shells say 126."""

    code = "NotExecutable"
    exit_code = 126


class _Internal(ShoalError):
    """A defect of Shoal's."""

    code = "Internal"
    exit_code = 1


def report(error: Exception, settings: Settings) -> int:
    """Print the error; returns the exit code."""
    if isinstance(error, click.Abort):
        return INTERRUPTED
    if settings.debug:
        import traceback

        traceback.print_exception(error)
    shown = _as_shoal_error(error, settings)
    if settings.output == "json":
        from shoal.cli.output import write_json

        try:
            write_json(shown.document())
        except OSError:  # stdout itself is what failed; stderr has it all the same
            give_up_stdout()
    from shoal.objects.text import printable

    print(f"error: {printable(shown.message, newlines=True)}", file=sys.stderr)
    problems: list[dict[str, Any]] = shown.details.get("problems", []) if shown.code == "Invalid" else []
    for problem in problems if len(problems) > 1 else ():  # one alone is the message
        print(f"  {printable(str(Problem(**problem)))}", file=sys.stderr)
    if shown.hint:
        print(f"hint: {printable(shown.hint)}", file=sys.stderr)
    return shown.exit_code


def outcome_code(obj: Any) -> int:
    """0 succeeded, 100 failed, 103 cancelled, 101 not finished: for `wait` and `logs -f`."""
    ended = _outcome(obj)
    return JOB_NOT_FINISHED if ended is None else _CODES[ended.result]


def process_code(obj: Any) -> int:
    """The exit code of the process that decided; where none did, as `outcome_code`. For `run`."""
    ended, outcome = _outcome(obj), outcome_code(obj)
    code = None if ended is None else ended.exit_code
    return code if outcome == JOB_FAILED and code is not None and 0 < code < 256 else outcome


def sentence(obj: Any, now: float) -> str:
    """How it ended: `succeeded after 3m10s`, `failed after 4.0s: worker 1 exited with 3`."""
    from shoal.objects.kinds import kind_of
    from shoal.objects.text import duration

    ended = _outcome(obj)
    if ended is None:
        state = kind_of(obj).state(obj)
        return "is suspended" if state.phase == "Suspended" else "has not finished"
    began = ended.started or obj.metadata.created
    lasted = duration((ended.finished or now) - began)
    if ended.result == "succeeded":
        return f"succeeded after {lasted}"
    word = "failed" if ended.result == "failed" else "was cancelled"
    why = f": {ended.message}" if ended.message and ended.result == "failed" else ""
    return f"{word} after {lasted}{why}" if ended.started else f"{word} before it started{why}"


def give_up_stdout() -> None:
    """Let what is still to be written to stdout go nowhere, so that leaving does not try it again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _as_shoal_error(error: Exception, settings: Settings) -> ShoalError:
    if isinstance(error, ShoalError):
        return error
    if isinstance(error, click.UsageError):
        return Usage(_sentence(error), hint=_usage_hint(error))
    if isinstance(error, click.ClickException):
        return Usage(_sentence(error))
    if isinstance(error, OSError):  # the disk is full, a folder is not ours, a file is not there
        known = error.filename is not None and error.strerror is not None
        return ShoalError(f"{error.filename}: {error.strerror}" if known else str(error))
    return _Internal(
        f"Shoal itself went wrong: {type(error).__name__}: {error}",
        hint="" if settings.debug else "--debug shows where; please report it with that output",
    )


def _sentence(error: click.ClickException) -> str:
    text = error.format_message().strip().partition(". Did you mean")[0].rstrip(".")
    return text[:1].lower() + text[1:]


def _usage_hint(error: click.UsageError) -> str:
    near = ""
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        near = f"did you mean {' or '.join(error.possibilities)}? "
    if error.ctx is None:
        return near.strip()
    return f"{near}`{error.ctx.command_path} --help` shows how it is used"


def _outcome(obj: Any) -> Any:
    from shoal.objects.kinds import kind_of

    hook = kind_of(obj).outcome
    return None if hook is None else hook(obj)
