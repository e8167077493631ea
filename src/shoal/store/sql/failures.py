"""What a database's error means to whoever called the store: wait, make room, or change the write."""

from __future__ import annotations

import sqlite3
from typing import Literal

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from shoal.objects.errors import Invalid, ShoalError, Unavailable

__all__ = ["Failure", "failure", "translated"]

Failure = Literal["busy", "full", "lost", "refused", "broken"]
"""busy: another process holds it, try again. full: no room. lost: it does not answer. refused: it
does not take this value. broken: anything else."""

_SQLITE: dict[int, Failure] = {
    sqlite3.SQLITE_BUSY: "busy",
    sqlite3.SQLITE_LOCKED: "busy",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_TOOBIG: "refused",
}
_POSTGRES: dict[str, Failure] = {
    "55P03": "busy",
    "40001": "busy",
    "40P01": "busy",
    "53100": "full",
    "53300": "busy",
    "25P03": "lost",
}
"""SQLSTATEs: lock not available, serialization failure, deadlock, disk full, too many connections,
idle in a transaction for too long."""


def failure(error: DBAPIError) -> Failure:
    """What kind of failure this is."""
    if error.connection_invalidated:
        return "lost"
    if isinstance(error, DataError | IntegrityError):
        return "refused"
    code = getattr(error.orig, "sqlite_errorcode", None)
    if isinstance(code, int):
        return _SQLITE.get(code & 0xFF, "broken")
    state = getattr(error.orig, "sqlstate", None)
    if isinstance(state, str):
        return "lost" if state[:2] in ("08", "57") else _POSTGRES.get(state, "broken")
    return (
        "lost"
        if error.orig is not None and type(error.orig).__module__.startswith("psycopg")
        else "broken"
    )


def translated(error: DBAPIError, where: str) -> ShoalError:
    """The error that a caller of the store gets."""
    what = failure(error)
    said = str(error.orig).strip().partition("\n")[0]
    if what == "refused":
        return Invalid(f"the store cannot hold this: {said}")
    if what == "busy":
        return Unavailable(
            f"the store at {where} is busy: {said}", hint="another process holds it; try again"
        )
    if what == "full":
        return Unavailable(
            f"the disk of the store at {where} is full; nothing of this change was stored",
            hint="free some space and repeat the command; what was stored before can be read",
        )
    if what == "lost":
        return Unavailable(
            f"the database at {where} does not answer: {said}",
            hint="a change that was under way may or may not have been stored",
        )
    return Unavailable(f"the store at {where} failed: {said}", hint="see whether its disk is healthy")
