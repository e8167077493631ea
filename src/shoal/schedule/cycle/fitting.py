"""What would fit, and what would be allowed, without doing it; equal asks are looked at once."""

from __future__ import annotations

from typing import Any

from shoal.schedule.cycle.books import Books
from shoal.schedule.cycle.columns import Columns
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.rows import Cluster
from shoal.schedule.placing.asks import Gang
from shoal.schedule.placing.foresee import would_fit
from shoal.schedule.placing.room import Room
from shoal.schedule.placing.shortfall import Shortfall, shortfall
from shoal.schedule.shares.ledger import Refusal

__all__ = ["Fitting"]

Reason = tuple[str, dict[str, Any]]


class Fitting:
    """Of one decision. `later`: the room once those who go are gone."""

    def __init__(self, cluster: Cluster, columns: Columns, later: Room) -> None:
        self._columns = columns
        self._later = later
        self._empty = Room(columns.all_nodes())
        self._unused = Books(cluster, columns)
        self._fits: dict[tuple[object, ...], bool] = {}
        self._short: dict[tuple[object, ...], tuple[int, Reason | None]] = {}

    def ever(self, asked: Asked) -> bool:
        """Whether its minimum would fit if nothing ran."""
        if asked.need not in self._fits:
            self._fits[asked.need] = would_fit(self._empty, _least(asked)) is not None
        return self._fits[asked.need]

    def shortfall_ever(self, asked: Asked) -> tuple[Shortfall, ...]:
        """How far each role gets if nothing runs."""
        return shortfall(self._empty, _least(asked))

    def refused_ever(self, asked: Asked) -> list[Refusal]:
        """What its user and queue may never have, though nothing ran."""
        amounts = asked.ask(asked.minimum, new=True)
        queue = self._columns.queue_at[asked.job.queue]
        rules = self._unused.ledger.refusals(queue, amounts)
        return [
            *self._unused.users.refusals(queue, asked.job.user, amounts),
            *(each for each in rules if each.rule != "Capacity"),
        ]

    def shortage(self, asked: Asked) -> Reason | None:
        """What kind of room there is not, once those who go are gone; None: there is room."""
        mark = self._later.mark()
        if asked.need not in self._short or self._short[asked.need][0] != mark:
            self._short[asked.need] = (mark, self._shortage(asked))
        return self._short[asked.need][1]

    def _shortage(self, asked: Asked) -> Reason | None:
        gang = _least(asked)
        if would_fit(self._later, gang) is not None:
            return None
        short = shortfall(self._later, gang)
        rows = list(zip(asked.job.roles, short, strict=True))
        evidence: dict[str, Any] = {
            "wanted": {role.name: each.wanted for role, each in rows},
            "fitting": {role.name: each.reachable for role, each in rows},
        }
        levels = {asked.job.required, *(role.required for role, _ in rows)} - {""}
        if all(each.anywhere >= each.wanted for each in short) and levels:
            return "TopologyBusy", {**evidence, "levels": sorted(levels)}
        if all(min(each.alone) >= each.wanted for each in short):
            return "Fragmented", evidence
        return "NoRoom", evidence


def _least(asked: Asked) -> Gang:
    return asked.gang(asked.minimum, asked.minimum)
