"""The entry point: a lazy group of verbs, and the one place where errors become exit codes.

A verb's module is imported when the verb is used, not before. Every error ends here: one sentence and
a hint on stderr, the same as a document on stdout under `-o json`, an exit code by the error's kind,
and the traceback only with `--debug`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from shoal import __version__
from shoal.cli import failures
from shoal.cli.catalogue import VERBS
from shoal.cli.options import common
from shoal.cli.settings import Settings


class Verbs(click.Group):
    """The group of all verbs: each is imported when it is asked for by name."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run one command line and leave with its exit code. Only `args` is heeded."""
        words = list(sys.argv[1:] if args is None else args)
        settings = Settings()
        settings.guess_from(words)
        try:
            code = self._run(words, settings)
            sys.stdout.flush()
        except click.exceptions.Exit as left:  # --help and its kin
            code = left.exit_code
        except BrokenPipeError:
            code = _leave_broken_pipe()
        except Exception as error:  # noqa: BLE001  the outermost frame: everything becomes an exit code
            code = failures.report(error, settings)
        except KeyboardInterrupt:
            code = failures.INTERRUPTED
        sys.exit(code)

    def _run(self, words: list[str], settings: Settings) -> int:
        instruction = os.environ.get("_SHOAL_COMPLETE", "")
        if instruction:
            return self._complete(settings, instruction)
        if not words:
            words = ["--help"]
        with self.make_context("shoal", words, obj=settings) as context:
            code: object = self.invoke(context)  # a verb may give its exit code back
        return code if isinstance(code, int) else 0

    def _complete(self, settings: Settings, instruction: str) -> int:
        """Completion for a shell; a failure must not write into that line."""
        from click.shell_completion import shell_complete

        try:
            return shell_complete(self, {"obj": settings}, "shoal", "_SHOAL_COMPLETE", instruction)
        except Exception:  # a shell's prompt is no place for an error
            if settings.debug:
                raise
            return 1

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, for help and completion."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the verb's module."""
        known = VERBS.get(cmd_name)
        return known.load() if known else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, or name the nearest one."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], [*VERBS, *_ELSEWHERE], 1, 0.6)
            meant = _ELSEWHERE.get(near[0], near[0]) if near else ""
            hint = f"did you mean `shoal {meant}`?" if meant else "`shoal --help` lists the verbs"
            raise failures.Usage(f"there is no verb {args[0]!r}", hint=hint)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """The verbs that begin so, none of them imported."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super(click.Group, self).shell_complete(ctx, incomplete)
        return [
            CompletionItem(name, help=known.help)
            for name, known in VERBS.items()
            if name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs by section, from the catalogue."""
        for section in dict.fromkeys(known.section for known in VERBS.values()):
            with formatter.section(section):
                formatter.write_dl(
                    [(name, known.help) for name, known in VERBS.items() if known.section == section]
                )


@click.group(
    "shoal",
    cls=Verbs,
    invoke_without_command=False,
    no_args_is_help=False,
    subcommand_metavar="VERB ...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`shoal VERB --help` explains a verb; `shoal run -- python train.py` is the place to start.",
)
@click.version_option(__version__, "--version", "-V", message="shoal %(version)s")
@common
def shoal() -> None:
    """Run training jobs that give machines away, lose them and get them back."""


def main() -> NoReturn:
    """The `shoal` command."""
    _open_closed_streams()
    shoal.main()


_ELSEWHERE = {
    "list": "get", "ls": "get", "ps": "get", "show": "get", "status": "describe", "create": "apply",
    "submit": "run", "launch": "run", "start": "up", "stop": "suspend", "kill": "cancel", "rm": "delete",
    "remove": "delete", "log": "logs", "why": "explain", "ssh": "exec", "attach": "logs",
    "pause": "suspend", "unpause": "resume", "check": "doctor", "server": "up",
}  # fmt: skip
"""What other tools call it; only used to say what it is called here."""


def _open_closed_streams() -> None:
    """What the caller has closed (`>&-`) leads nowhere: otherwise the next file opened would get its
    number, and what is meant for stderr would be written to stdout."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: PTH123, SIM115


def _leave_broken_pipe() -> int:
    """The reader of stdout has gone (`shoal get jobs | head -1`): say nothing, as other tools do."""
    failures.give_up_stdout()
    return 141  # 128 + SIGPIPE
