"""`shoal version` and `shoal completion`: the versions of client and server, and the script with which a
shell completes verbs, options and names of live objects."""

from __future__ import annotations

import platform
from typing import Any

import click

from shoal import __version__
from shoal.cli.failures import Usage
from shoal.cli.options import reports, verb
from shoal.cli.output import emit, say
from shoal.cli.settings import Settings, connect
from shoal.objects.errors import Unavailable, VersionSkew


@verb("version")
@reports
def version(settings: Settings) -> None:
    """Show the versions of client and server.

    Without a running server only the client's is shown. Versions fit together when they differ in the
    last number only.
    """
    server: Any = None
    with connect(settings, timeout_seconds=5.0, check_version=False) as client:
        try:
            server = client.version()
        except Unavailable as error:
            say(error.message if settings.remote else "no server is running here; shoal up starts one")
    client_version = {"version": __version__, "python": platform.python_version()}
    rows = [["client", __version__, platform.python_version(), ""]]
    if server is not None:
        rows.append(["server", server.version, server.python, f"pid {server.pid}, {server.home}"])
    emit(
        settings, {"client": client_version, "server": server}, ["", "VERSION", "PYTHON", "WHERE"], rows
    )
    if server is not None:
        _tell_skew(settings)


@verb("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, settings: Settings, shell: str) -> None:
    """Print a shell's completion script.

    \b
    bash:  echo 'eval "$(shoal completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(shoal completion zsh)"' >> ~/.zshrc
    fish:  shoal completion fish > ~/.config/fish/completions/shoal.fish
    """
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    if complete is None:  # pragma: no cover - the three are built in
        raise Usage(f"there is no completion for {shell}")
    print(complete(context.find_root().command, {}, "shoal", "_SHOAL_COMPLETE").source())


def _tell_skew(settings: Settings) -> None:
    """Every other verb is refused by a server that does not fit; here it is only said."""
    with connect(settings, timeout_seconds=5.0) as client:
        try:
            client.version()
        except VersionSkew as error:
            say(f"{error.message}\nhint: {error.hint}")
