"""The one policy for a database that another process holds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from shoal.store.sql.connect import BUSY_SECONDS
from shoal.store.sql.failures import failure

__all__ = ["until_free"]

T = TypeVar("T")


def until_free(attempt: Callable[[], T]) -> T:
    """Attempt it until the database is not busy, for `BUSY_SECONDS` at most.

    Real time, whatever clock the store stamps with: another process's lock knows no other.

    Raises:
        DBAPIError: of the last attempt; at once when it is not that the database is busy.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return attempt()
        except DBAPIError as error:
            if failure(error) != "busy" or time.monotonic() >= deadline:
                raise
        time.sleep(random.uniform(0.005, 0.05))
