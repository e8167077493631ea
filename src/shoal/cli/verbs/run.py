"""`shoal run`: a command as a job, here and now, with nothing set up before."""

from __future__ import annotations

import os
import shutil
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, get_args

import click

from shoal.cli.failures import CommandNotFound, NotExecutable, Usage
from shoal.cli.launch.job import Request, build_job, local_cores_millis, task_environment
from shoal.cli.options import (
    CPU,
    DEPENDENCY,
    DEVICES,
    DURATION,
    HOURS,
    INDICES,
    KEY_VALUE,
    MEMORY,
    PRIORITY,
    SECRET,
    dry_run,
    reports,
    verb,
    whole,
)
from shoal.cli.output import say, write_document, write_names
from shoal.cli.settings import Settings
from shoal.client import Client
from shoal.objects.errors import Exists
from shoal.objects.job import Job, Runtime

_COUNT = whole(1, 100_000)


@verb("run", context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.option("--workers", type=_COUNT, help="Number of tasks; 1 by default.")
@click.option("--min", "least", type=_COUNT, help="Elastic: the fewest tasks to run with; 1 by default.")
@click.option("--max", "most", type=_COUNT, help="Elastic: the most tasks; they come and go.")
@click.option(
    "--array", "indices", type=INDICES, metavar="0-99%10", help="One task per index, at most 10 at once."
)
@click.option(
    "--queue", "-q", default="default", metavar="NAME", help="The queue; `default` by default."
)
@click.option(
    "--priority", "-p", type=PRIORITY, default=0, help="A number, or production, normal, experiment."
)
@click.option("--cpu", type=CPU, help="Cores for each task; by default all tasks fit.")
@click.option("--memory", type=MEMORY, help="Memory for each task, such as 2Gi; a hard limit.")
@click.option("--gpu", type=DEVICES, default=0, help="GPUs for each task, or a part of one: 0.5.")
@click.option("--name", default="", metavar="NAME", help="The job's name; by default from the command.")
@click.option(
    "--runtime",
    type=click.Choice(get_args(Runtime)),
    default=None,
    help="How tasks find one another; elastic with --max, torchrun for several workers, else plain.",
)
@click.option(
    "--env",
    "-e",
    "variables",
    type=KEY_VALUE,
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable for the tasks; without =VALUE it is copied from this shell.",
)
@click.option(
    "--secret",
    "secrets",
    type=SECRET,
    multiple=True,
    metavar="NAME | NAME=VARIABLE | NAME:FILE",
    help="A secret as this variable, or as a file in $SHOAL_SECRETS; as $NAME by default.",
)
@click.option(
    "--isolation",
    type=click.Choice(["default", "strict"]),
    default="default",
    help="strict: refuse to run without every isolation that doctor lists, a network included.",
)
@click.option(
    "--restart",
    "restarts",
    type=whole(0),
    default=None,
    help="Restarts allowed after failures; 0 by default, 3 with --max.",
)
@click.option("--wall-time", type=DURATION, help="Fail the job after this time, such as 2h.")
@click.option("--node-hours", type=HOURS, help="Fail the job after N node-hours.")
@click.option(
    "--within",
    default="",
    metavar="LEVEL",
    help="Place all tasks in one domain of this topology level, such as rack or node.",
)
@click.option(
    "--after",
    type=DEPENDENCY,
    multiple=True,
    metavar="JOB[:END]",
    help="Start only after this job's success, failure or end; success by default. May be repeated.",
)
@click.option("--detach", "-d", is_flag=True, help="Print the job's name and return; the job continues.")
@click.option("--prefix/--no-prefix", default=True, help="Name the task before each line of output.")
@click.option("--raw", is_flag=True, help="On a terminal: leave escape sequences in the output.")
@dry_run
@reports
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(
    settings: Settings,
    words: tuple[str, ...],
    variables: tuple[tuple[str, str | None], ...],
    detach: bool,
    prefix: bool,
    raw: bool,
    dry_run: bool,
    **said: Any,
) -> int:
    """Run a command as a job and follow it.

    \b
    shoal run -- python train.py
    shoal run --workers 4 -- python train.py
    shoal run --array 0-99%8 -d -- ./sweep.sh
    shoal run --after job/sweep:end -- python summary.py

    A server and a node agent are started if none run (shoal down stops them). The tasks run in this
    directory, with this PATH and virtual environment, but without variables that look like secrets. The
    exit code is that of the task that decided the job.

    The first Ctrl-C cancels the job and waits for its end, the second returns at once.
    """
    if not words:
        raise Usage("there is no command to run", hint="such as: shoal run -- python train.py")
    request = Request(
        command=words,
        directory=_directory(),
        environment=task_environment(os.environ, variables),
        **{name: said.pop(name) for name in ("workers", "least", "most", "indices", "cpu")},
        options=said,  # named as the parameters of `job_of`
    )
    if not settings.remote:
        _check_program(words[0])
    if dry_run:
        write_document(settings, build_job(request, settings.namespace, [local_cores_millis()]))
        return 0
    return _run(settings, request, detach=detach, prefixed=prefix, raw=raw)


def _revived(settings: Settings) -> AbstractContextManager[object]:
    if settings.remote:
        return nullcontext()
    from shoal.cli.offline.start import Reviving

    return Reviving(settings.home)


def _run(settings: Settings, request: Request, *, detach: bool, prefixed: bool, raw: bool) -> int:
    starting = None
    if not settings.remote:
        from shoal.cli.offline.start import Starting

        starting = Starting(settings.home)  # first of all: the rest is loaded while it starts
    from shoal.cli.launch import attach
    from shoal.cli.settings import connect

    if starting is not None and starting.finish():
        say(f"started Shoal (state in {settings.home}); stop it with: {settings.spelt('down')}")
    with connect(settings) as client:
        if not detach:
            with _revived(settings):
                return attach.follow(
                    client,
                    settings,
                    lambda: _create(client, settings, request, True),
                    prefixed=prefixed,
                    raw=raw,
                )
        job = _create(client, settings, request, False)
        if settings.output in ("json", "yaml"):
            write_document(settings, job)
    return 0


def _create(client: Client, settings: Settings, request: Request, following: bool) -> Job:
    nodes = [local_cores_millis()]
    if request.cpu is None:
        nodes = _node_sizes(client) or nodes
    while True:
        try:
            job = client.create(build_job(request, settings.namespace, nodes))
            break
        except Exists:
            if request.options["name"]:
                raise  # a made-up name is simply made up anew
    target = f"job/{job.metadata.name}"
    if not following and settings.output not in ("json", "yaml"):
        write_names([target])
    _say_next(settings, target, following=following)
    return job


def _node_sizes(client: Client) -> list[int]:
    """Thousandths of the cores of the nodes that take tasks."""
    from shoal.objects.kinds import NODE

    nodes = [record.object for record in client.list(NODE).records]
    return [
        int(node.status.capacity.cpu)
        for node in nodes
        if not node.spec.unschedulable and not node.spec.lost and node.status.capacity.cpu
    ]


def _say_next(settings: Settings, target: str, *, following: bool) -> None:
    """The three commands that one would want next."""
    commands = [
        (f"logs -f {target}", "its output, from another terminal" if following else "follow its output"),
        (f"describe {target}", "how it is doing"),
        (f"cancel {target}", "end it (here: Ctrl-C)" if following else "end it"),
    ]
    lines = [(settings.spelt(words), what) for words, what in commands]
    width = max(len(line) for line, _ in lines)
    body = "\n".join(f"  {line.ljust(width)}  {what}" for line, what in lines)
    say(f"{target} is submitted\n{body}" if following else body)


def _directory() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError as error:
        raise Usage("this directory does not exist any more", hint="cd to one that does") from error


def _check_program(program: str) -> None:
    """Say at once what would otherwise fail on a node, with the exit codes that shells use."""
    if shutil.which(program):
        return
    path = Path(program)
    if path.is_file():
        runs = "python" if path.suffix == ".py" else "sh"
        near = f"{runs} {program}" if os.sep in program or path.suffix else f"./{program}"
        raise NotExecutable(f"{program} cannot be executed", hint=f"did you mean: {near}?")
    if os.sep in program:
        raise CommandNotFound(f"there is no file {program} in {Path.cwd()}")
    raise CommandNotFound(
        f"{program}: command not found", hint="is its virtual environment active, its path right?"
    )
