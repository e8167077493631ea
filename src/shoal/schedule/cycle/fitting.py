"""What would fit, and what would be allowed, without doing it; equal asks are looked at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.schedule.cycle.books import Books
from shoal.schedule.cycle.columns import GPU, Columns
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.rows import Cluster
from shoal.schedule.placing.asks import Gang
from shoal.schedule.placing.foresee import would_fit
from shoal.schedule.placing.room import Nodes, Room
from shoal.schedule.placing.shortfall import Shortfall, shortfall
from shoal.schedule.shares.ledger import Refusal

__all__ = ["Fitting"]

Reason = tuple[str, dict[str, Any]]
_MOST_NAMES = 5


class Fitting:
    """Of one decision. `later`: the room once those who go are gone."""

    def __init__(self, cluster: Cluster, columns: Columns, later: Room) -> None:
        self._columns = columns
        self._later = later
        self._rows = cluster.nodes
        self._all: Nodes = columns.all_nodes()
        self._empty = Room(self._all)
        self._open = self._empty if self._all is columns.nodes else Room(columns.nodes)
        """Empty as well, without nodes that do not answer, or take nothing for now."""
        self._unused = Books(cluster, columns)
        self._fits: dict[tuple[object, ...], bool] = {}
        self._short: dict[tuple[object, ...], tuple[int, list[Reason]]] = {}

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

    def shortage(self, asked: Asked) -> list[Reason]:
        """What kind of room there is not, once those who go are gone; nothing where there is room."""
        mark = self._later.mark()
        if asked.need not in self._short or self._short[asked.need][0] != mark:
            self._short[asked.need] = (mark, self._shortage(asked))
        return self._short[asked.need][1]

    def _shortage(self, asked: Asked) -> list[Reason]:
        gang = _least(asked)
        if would_fit(self._later, gang) is not None:
            return []
        if self._open is self._empty or would_fit(self._open, gang) is not None:
            return [self._lack(asked, gang, self._later)]
        found: list[Reason] = [("WaitingForNode", self._closed())]
        if would_fit(everywhere := self._everywhere(), gang) is None:
            found.append(self._lack(asked, gang, everywhere))
        return found

    def _lack(self, asked: Asked, gang: Gang, room: Room) -> Reason:
        short = shortfall(room, gang)
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
        lacking = {
            name: each.wanted - alone
            for each in short
            for name, alone in zip((*self._columns.resources, GPU), each.alone, strict=True)
            if alone < each.wanted
        }
        return "NoRoom", {**evidence, "short": sorted(lacking, key=lambda name: (-lacking[name], name))}

    def _closed(self) -> dict[str, Any]:
        silent = [node.name for node in self._rows if not node.ready]
        cordoned = [node.name for node in self._rows if node.ready and not node.schedulable]
        return {"silent": silent[:_MOST_NAMES], "cordoned": cordoned[:_MOST_NAMES]}

    def _everywhere(self) -> Room:
        """As `later`, with all nodes."""
        room = self._later.copy()
        rows = [at for at, node in enumerate(self._rows) if not (node.ready and node.schedulable)]
        room.replace(self._all, np.array(rows, dtype=np.int64))
        return room


def _least(asked: Asked) -> Gang:
    return asked.gang(asked.minimum, asked.minimum)
