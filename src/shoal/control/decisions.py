"""Decisions kept as files, the newest so many, for whoever wants to know why (`shoal replay`)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from shoal.objects import codec
from shoal.schedule.record import Record

__all__ = ["DecisionFiles", "recorded"]

_log = logging.getLogger(__name__)
_SUFFIX = ".json"


def recorded(folder: Path) -> list[Path]:
    """The files of a folder, the oldest first."""
    return sorted(folder.glob(f"*{_SUFFIX}"))


class DecisionFiles:
    """Writes into a folder of its own. `most` says how many to keep, and may change; 0 records nothing.

    That a disk is full stops no decision: what could not be written is missing, and logged once.
    """

    def __init__(self, folder: Path, most: Callable[[], int]) -> None:
        self._folder = folder
        self._most = most
        self._failed = False

    def record(self, record: Record) -> None:
        """Keep it, and no more than so many."""
        most = self._most()
        if most <= 0:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{record.now:017.6f}{_SUFFIX}"
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_bytes(codec.encode(record))
            draft.replace(path)
            for old in recorded(self._folder)[:-most]:
                old.unlink(missing_ok=True)
            self._failed = False
        except OSError as error:
            if not self._failed:
                _log.warning("decisions cannot be recorded in %s: %s", self._folder, error)
            self._failed = True
