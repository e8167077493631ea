"""What would fit, and what would be allowed, without doing it; equal asks are looked at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shoal.schedule.cycle.columns import GPU
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.ground import Ground
from shoal.schedule.placing.asks import Gang
from shoal.schedule.placing.place import has_room
from shoal.schedule.placing.room import Room
from shoal.schedule.placing.shortfall import Shortfall, Shortfalls, shortfall
from shoal.schedule.shares.ledger import Refusal

__all__ = ["Fitting"]

Reason = tuple[str, dict[str, Any]]
_MOST_NAMES = 5


class Fitting:
    """Of one decision on this ground. `later`: the room once those who go are gone."""

    def __init__(self, ground: Ground, later: Room) -> None:
        self._later = later
        self._shortfalls = Shortfalls(later)
        self._ground = ground
        self._columns, self._rows = ground.columns, ground.rows
        self._short: dict[int, tuple[int, list[Reason]]] = {}

    def never(self, asked: Asked, find: Callable[[], list[Reason]]) -> list[Reason]:
        """What it `find`s to be in its way for ever: once for all who are alike."""
        alike = (asked.kind, asked.job.namespace, asked.job.counts)
        known = self._ground.never.get(alike)
        if known is None:
            known = self._ground.never[alike] = find()
        return known

    def ever(self, asked: Asked) -> bool:
        """Whether its minimum would fit if nothing ran."""
        fits = self._ground.fits
        if asked.need not in fits:
            fits[asked.need] = has_room(self._ground.empty, _least(asked))
        return fits[asked.need]

    def shortfall_ever(self, asked: Asked) -> tuple[Shortfall, ...]:
        """How far each role gets if nothing runs."""
        return shortfall(self._ground.empty, _least(asked))

    def refused_ever(self, asked: Asked) -> list[Refusal]:
        """What its user and queue may never have, though nothing ran."""
        amounts = asked.ask(asked.minimum, new=True)
        unused = self._ground.unused
        rules = unused.ledger.refusals(asked.queue, amounts)
        return [
            *unused.users.refusals(asked.queue, asked.job.user, amounts),
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
        if has_room(self._later, gang):
            return []
        ground = self._ground
        if ground.open_nodes is ground.empty or has_room(ground.open_nodes, gang):
            return [self._lack(asked, gang, self._later)]
        found: list[Reason] = [("WaitingForNode", self._closed())]
        if not has_room(everywhere := self._everywhere(), gang):
            found.append(self._lack(asked, gang, everywhere))
        return found

    def _lack(self, asked: Asked, gang: Gang, room: Room) -> Reason:
        short = self._shortfalls.of(gang) if room is self._later else shortfall(room, gang)
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
        room.replace(self._ground.all_nodes, np.array(rows, dtype=np.int64))
        return room


def _least(asked: Asked) -> Gang:
    return asked.gang(asked.minimum, asked.minimum)
