"""`shoal convert`: foreign manifests as the objects of Shoal that `apply` would make of them."""

from __future__ import annotations

import click

from shoal.cli.manifests import read_manifests
from shoal.cli.options import verb
from shoal.cli.output import write_json
from shoal.cli.settings import Settings
from shoal.compat import supported

_HELP = f"""Show manifests of other systems as objects of Shoal.

Needs no server. `shoal apply` takes the same files as they are. What has no counterpart is named on
stderr; what would change the result is refused.

It takes {supported()}.
"""


@verb("convert", help=_HELP)
@click.option(
    "--file", "-f", "sources", multiple=True, required=True, metavar="FILE|DIR|-",
    help="YAML or JSON; all of a folder's; - is standard input. May be given several times.",
)  # fmt: skip
@click.option("--output", "-o", "form", type=click.Choice(("yaml", "json")), default="yaml",
              metavar="FORMAT", help="yaml or json.")  # fmt: skip
def command(settings: Settings, sources: tuple[str, ...], form: str) -> None:
    """Convert the manifests and print them."""
    from shoal.objects.yaml import to_yaml

    objects = [each.object for each in read_manifests(sources, settings)]
    if form == "yaml":
        print(to_yaml(*objects), end="")
    else:
        write_json({"items": objects})
