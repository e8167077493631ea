"""Who may hold a lease: judged by how long it has been seen unchanged, never by anybody's wall clock.

Two processes may each believe for a moment that a lease is theirs (a holder that was stalled does not
know that its time is over), so what a holder writes is guarded by preconditions as well; see `base`.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from shoal.clock import Clock
from shoal.store.backend import LeaseRow

__all__ = ["Observations"]


class Observations:
    """When this process last saw each lease change. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[int, float]] = {}

    def taken(self, row: LeaseRow | None, name: str, holder: str, duration: float) -> LeaseRow | None:
        """The lease as `holder` would store it, None while another holds it."""
        if row is None:
            return self._note(LeaseRow(name, holder, 1, duration, 1))
        renewed = replace(row, duration_seconds=duration, renewals=row.renewals + 1)
        if row.holder == holder:
            return self._note(renewed)
        if row.holder and not self._run_out(row):
            return None
        return self._note(replace(renewed, holder=holder, token=row.token + 1))

    def released(self, row: LeaseRow | None, holder: str, token: int) -> LeaseRow | None:
        """The lease held by nobody, None when it was not this holder's."""
        if row is None or (row.holder, row.token) != (holder, token):
            return None
        return self._note(replace(row, holder="", renewals=row.renewals + 1))

    def _run_out(self, row: LeaseRow) -> bool:
        now = self._clock.monotonic()
        with self._lock:
            seen = self._seen.get(row.name)
            if seen is None or seen[0] != row.renewals:
                self._seen[row.name] = (row.renewals, now)
                return False
            return now - seen[1] >= row.duration_seconds

    def _note(self, row: LeaseRow) -> LeaseRow:
        with self._lock:
            self._seen[row.name] = (row.renewals, self._clock.monotonic())
        return row
