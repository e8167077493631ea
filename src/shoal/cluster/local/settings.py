"""The settings of a home's cluster: `settings.json`, written by `shoal up`.

The server reads the file again before each decision if it has changed, so a change by `shoal up` takes
effect immediately. Users and other versions of Shoal edit the file too: a value that this version does
not understand stops no decision. The previous value stays in effect, and one warning is logged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import msgspec

from shoal import statefiles
from shoal.cluster.local.home import Home
from shoal.cluster.platform import ClusterSettings
from shoal.objects import codec
from shoal.objects.errors import Invalid
from shoal.objects.job_rules import levels_problem

__all__ = ["ClusterSettings", "LiveSettings", "load", "problems", "save"]

_log = logging.getLogger(__name__)


def load(home: Home) -> ClusterSettings:
    """The settings as they are written; the defaults before anybody said any.

    Raises:
        Invalid: the file holds something else, or cannot be read.
    """
    path = home.settings_json
    try:
        return codec.decode(path.read_bytes(), ClusterSettings)
    except FileNotFoundError:
        return ClusterSettings()
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}", hint="remove it") from error
    except (msgspec.MsgspecError, ValueError) as error:  # the latter: bytes that are no text
        raise Invalid(f"{path} cannot be read: {error}", hint="remove it") from error


def save(home: Home, settings: ClusterSettings) -> None:
    """Make these the settings."""
    document = msgspec.json.format(codec.encode(settings), indent=2) + b"\n"
    statefiles.write(home.settings_json, document)


def problems(settings: ClusterSettings) -> dict[str, str]:
    """What this version makes nothing of: field to what is wrong with it, in words."""
    found: dict[str, str] = {}
    if problem := levels_problem(settings.topology):
        found["topology"] = problem
    if problem := _policy_problem(settings.policy):
        found["policy"] = problem
    if settings.record < 0:
        found["record"] = f"{settings.record} decisions cannot be kept"
    return found


def _policy_problem(name: str) -> str:
    if name == ClusterSettings().policy:
        return ""
    from shoal.schedule.plan import policy_named  # brings numpy, which a server on its way up waits for

    try:
        policy_named(name)
    except Invalid as error:
        return error.message
    return ""


class LiveSettings:
    """The settings as they are now. A value that is not understood keeps its previous value; while the
    file cannot be read all of them do. Thread-safe."""

    def __init__(self, home: Home, tell: Callable[[str], None] = _log.warning) -> None:
        """`tell` is called once, with a sentence, for each version of the file that has a problem."""
        self._home = home
        self._tell = tell
        self._lock = threading.Lock()
        self._known = ClusterSettings()
        self._seen: tuple[int, int, int] | None = None
        self._problem = ""

    def __call__(self) -> ClusterSettings:
        """Read again when the file is another."""
        with self._lock:
            self._look()
            return self._known

    @property
    def problem(self) -> str:
        """What was wrong with the file when it was last read, and what holds instead; empty: nothing.
        Reads no file: the event loop asks."""
        return self._problem

    def _look(self) -> None:
        try:
            stat = self._home.settings_json.stat()
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        except OSError:
            seen = (0, 0, 0)
        if seen == self._seen:
            return
        self._seen = seen
        before, self._problem = self._problem, ""
        try:
            self._take(load(self._home))
        except Invalid as error:
            self._problem = f"{error.message}; {_still(self._known, ClusterSettings.__struct_fields__)}"
        if self._problem and self._problem != before:
            self._tell(self._problem)

    def _take(self, said: ClusterSettings) -> None:
        wrong = problems(said)
        kept = {field: getattr(self._known, field) for field in wrong}
        self._known = msgspec.structs.replace(said, **kept)
        if wrong:
            told = "; ".join(f"{field}: {problem}" for field, problem in wrong.items())
            self._problem = f"{self._home.settings_json}: {told}; {_still(self._known, tuple(wrong))}"


def _still(settings: ClusterSettings, fields: tuple[str, ...]) -> str:
    words = {"topology": ",".join(settings.topology) or "nodes alone"}
    return f"until it is mended {', '.join(_said(settings, field, words) for field in fields)}"


def _said(settings: ClusterSettings, field: str, words: dict[str, str]) -> str:
    return f"{field} stays {words.get(field, getattr(settings, field))}"
