"""`shoal version`: of this client and of the server; what to do when they do not fit together."""

from __future__ import annotations

import platform
from typing import Any

from shoal import __version__
from shoal.cli.connection import connect
from shoal.cli.options import reports, verb
from shoal.cli.output import emit, say
from shoal.cli.settings import Settings
from shoal.objects.errors import Unavailable, VersionSkew


@verb("version")
@reports
def command(settings: Settings) -> None:
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
        settings,
        {"client": client_version, "server": server},
        ["", "VERSION", "PYTHON", "WHERE"],
        rows,
    )
    if server is not None:
        _tell_skew(settings)


def _tell_skew(settings: Settings) -> None:
    """Every other verb is refused by a server that does not fit; here it is only said."""
    with connect(settings, timeout_seconds=5.0) as client:
        try:
            client.version()
        except VersionSkew as error:
            say(f"{error.message}\nhint: {error.hint}")
