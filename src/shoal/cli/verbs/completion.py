"""`shoal completion`: the script that makes a shell complete verbs, options and live object names."""

from __future__ import annotations

import click

from shoal.cli.failures import Usage
from shoal.cli.options import verb
from shoal.cli.settings import Settings


@verb("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, settings: Settings, shell: str) -> None:
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
