"""What holds for the whole cluster of a home: `settings.json`, written by `shoal up`.

A server that is up reads it each time that it needs it, so what `shoal up` changes holds at once.
"""

from __future__ import annotations

import logging
import os

import msgspec

from shoal.cluster.local.home import Home
from shoal.objects import codec
from shoal.objects.errors import Invalid
from shoal.objects.meta import Part

__all__ = ["ClusterSettings", "Watched", "load", "save"]

_log = logging.getLogger(__name__)


class ClusterSettings(Part, frozen=True, kw_only=True):
    """See the module."""

    topology: tuple[str, ...] = ()
    """Labels of nodes that are levels of the topology, the widest first: block, rack. The node itself
    follows them."""
    policy: str = "shoal"
    """How to decide who gets what: a name in `shoal.schedule.cycle.peers.named`."""
    record: int = 20
    """So many of the newest decisions are kept as files."""


def load(home: Home) -> ClusterSettings:
    """The settings; the defaults before anybody said any.

    Raises:
        Invalid: the file holds something else.
    """
    try:
        return codec.decode(home.settings_json.read_bytes(), ClusterSettings)
    except FileNotFoundError:
        return ClusterSettings()
    except msgspec.MsgspecError as error:
        raise Invalid(f"{home.settings_json} cannot be read: {error}", hint="remove it") from error


def save(home: Home, settings: ClusterSettings) -> None:
    """Make these the settings."""
    draft = home.settings_json.with_suffix(f".{os.getpid()}")
    with draft.open("wb") as file:
        file.write(msgspec.json.format(codec.encode(settings), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(home.settings_json)


class Watched:
    """The settings as they are now, for whoever asks often. While the file cannot be read, what was read
    last holds."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._known = ClusterSettings()
        self._seen: tuple[int, int, int] | None = None

    def __call__(self) -> ClusterSettings:
        """Read again when the file is another."""
        try:
            stat = self._home.settings_json.stat()
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        except FileNotFoundError:
            seen = (0, 0, 0)
        if seen != self._seen:
            self._seen = seen
            try:
                self._known = load(self._home)
            except Invalid as error:
                _log.warning("the settings stay what they were: %s", error.message)
        return self._known
