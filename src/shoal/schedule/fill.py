"""Second stage: capacity is given out, priority by priority, first come first served within one.

Of each priority, every job first gets what it needs to run (an array: every index that may run), then
elastic jobs get more. A job that does not fit is passed over and those behind it may start: first come
with skips, unless elastic jobs of lower priority can make room for it (`reclaim`): then that is kept
for it. Capacity and quota only shrink while this goes on, so what has failed for one job fails for
every later one that asks the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.objects.meta import Stamp
from shoal.schedule.give_back import Draft, Index
from shoal.schedule.plan import Policy
from shoal.schedule.quota import Denial, Quotas
from shoal.schedule.reasons import Ask, Reasons, place_all
from shoal.schedule.reclaim import Reclaim
from shoal.schedule.room import Bools, Place, Room
from shoal.schedule.snapshot import LONGEST_AVOIDANCE_SECONDS, Hold, JobRow, NodeRow, RoleForm
from shoal.schedule.wants import lacking, surplus

__all__ = ["Fill"]

_MOST_GIVERS = 5


class Fill:
    """Gives out the room; see the module's docstring. `again_at` collects when to look again."""

    def __init__(
        self,
        nodes: Sequence[NodeRow],
        room: Room,
        quotas: Quotas,
        policy: Policy,
        now: Stamp,
        reclaim: Reclaim,
    ) -> None:
        self._room = room
        self._quotas = quotas
        self._policy = policy
        self._now = now
        self._reclaim = reclaim
        self._reasons = Reasons(nodes)
        self._known: dict[tuple[str, str, int, int], Denial] = {}
        self._full: set[int] = set()
        self.again_at: Stamp | None = None

    def known(self, row: JobRow) -> Denial | None:
        """What an equal job was denied for in this decision, None when there was none."""
        if row.holds or row.done or row.avoid or row.reserved:
            return None
        return self._known.get((row.queue, row.namespace, row.priority, row.form))

    def serve(self, draft: Draft) -> None:
        """Give the job what it needs to run, or say why not."""
        wanted = lacking(draft)
        if not wanted:
            return
        denial = self._quotas.barred(draft.row)
        if denial is None:
            apart = draft.form.array or (not draft.form.whole and bool(draft.kept))
            denial = self._some(draft, wanted) if apart else self._all(draft, wanted)
            # one that has begun to take, or has to give back first, reserves next time
            if denial is not None and not draft.got and not (draft.form.whole and draft.kept):
                self._reserve(draft, [[index] for index in wanted] if apart else [wanted])
        if denial is None or draft.reserved:
            return
        draft.code, draft.evidence = denial
        row = draft.row
        if not (row.holds or row.done or row.avoid):
            self._known[row.queue, row.namespace, row.priority, row.form] = denial
        if draft.form.whole and draft.forced:
            for hold in list(draft.kept.values()):
                draft.drop(hold, draft.forced)
                self._reclaim.gave_back(draft, hold)

    def extend(self, draft: Draft) -> None:
        """Give the job more than it needs, as far as there is room."""
        if draft.code or not (draft.kept or draft.got) or self._quotas.barred(draft.row) is not None:
            return
        more = surplus(draft)
        if more and draft.form.whole and draft.kept and not (draft.lost or draft.got):
            due = draft.row.changed + self._policy.regrow_seconds
            if self._now < due:
                self._look_again(due)
                return
        for role, indices in more:
            self._grow(draft, role, indices)

    def _all(self, draft: Draft, wanted: list[Index]) -> Denial | None:
        asks = _asks(draft, wanted)
        shapes = [(role.shape, count) for role, count in asks]
        denial = self._quotas.exceeded(draft.row, shapes)
        if denial is not None:
            return denial
        where = [self._where(draft, role) for role, _ in asks]
        placed = place_all(self._room, asks, where)
        if placed is None:
            return self._reason(draft, asks, wanted)
        for (role, _), places in zip(asks, placed, strict=True):
            indices = sorted(index for name, index in wanted if name == role.name)
            self._give(draft, role, indices, places)
        return None

    def _some(self, draft: Draft, wanted: list[Index]) -> Denial | None:
        for role, _ in _asks(draft, wanted):
            self._grow(draft, role, sorted(index for name, index in wanted if name == role.name))
        missing = [index for index in wanted if index not in draft.got]
        if not missing or (draft.form.array and (draft.got or draft.kept)):
            return None
        one = _asks(draft, missing[:1])
        denial = self._quotas.exceeded(draft.row, [(role.shape, 1) for role, _ in one])
        return denial or self._reason(draft, one, missing[:1])

    def _reserve(self, draft: Draft, groups: list[list[Index]]) -> None:
        """Have room made for as many of the groups as can be; each fits whole or not at all."""
        givers: dict[str, None] = {}
        for group in groups:
            asks = _asks(draft, group)
            found = self._reclaim.reserve(draft, asks, [self._where(draft, role) for role, _ in asks])
            if found is None:
                break
            for giver, _ in found.victims:
                givers[f"{giver.row.namespace}/{giver.row.name}"] = None
            for (role, count), places in zip(asks, found.places, strict=True):
                indices = sorted(index for name, index in group if name == role.name)
                draft.reserved.update(_held(role, indices, places))
                self._quotas.charge(draft.row, role.shape, count)
        if not draft.reserved:
            return
        for hold in draft.reserved.values():  # what is free already is kept as well
            self._room.occupy(hold)
        known: list[str] = draft.row.evidence.get("jobs", []) if draft.row.code == "Reserved" else []
        named = list(dict.fromkeys([*known, *givers]))[-_MOST_GIVERS:]
        draft.code = "Reserved"
        draft.evidence = {"tasks": len(draft.reserved), "jobs": named}

    def _reason(self, draft: Draft, asks: list[Ask], missing: list[Index]) -> Denial:
        together = _asks(draft, [*draft.kept, *draft.got, *missing])
        return self._reasons.find(draft.row, asks, together, self._room, self._avoided(draft.row))

    def _grow(self, draft: Draft, role: RoleForm, indices: list[int]) -> None:
        row = draft.row
        avoids = bool(self._avoided(row))
        if id(role.shape) in self._full and not avoids:
            return
        most = self._quotas.room(row, role.shape, len(indices))
        if most <= 0:
            return
        places = self._room.place(role.shape, most, self._where(draft, role))
        if len(places) < most and not avoids:
            self._full.add(id(role.shape))
        self._give(draft, role, indices[: len(places)], places)

    def _give(self, draft: Draft, role: RoleForm, indices: list[int], places: list[Place]) -> None:
        if not places:
            return
        self._quotas.charge(draft.row, role.shape, len(places))
        got = _held(role, indices, places)
        for hold in got.values():
            self._reclaim.took(draft, hold)
        draft.got.update(got)

    def _where(self, draft: Draft, role: RoleForm) -> Bools:
        where = self._room.usable(role.shape)
        avoid = self._avoided(draft.row)
        if avoid:
            self._look_again(draft.row.avoid_until)
            where = where.copy()
            where[self._room.at[avoid]] = False
        return where

    def _avoided(self, row: JobRow) -> str:
        left = row.avoid_until - self._now
        if not 0 < left <= LONGEST_AVOIDANCE_SECONDS:  # more: the wall clock was set back meanwhile
            return ""
        return row.avoid if row.avoid in self._room.at else ""

    def _look_again(self, at: Stamp) -> None:
        self.again_at = at if self.again_at is None else min(at, self.again_at)


def _held(role: RoleForm, indices: list[int], places: list[Place]) -> dict[Index, Hold]:
    shape = role.shape
    return {
        (role.name, index): Hold(
            role=role.name,
            index=index,
            node=node,
            devices=devices,
            cpu=shape.cpu,
            memory=shape.memory,
            gpu=shape.gpu,
            slot=True,
        )
        for index, (node, devices) in zip(indices, places, strict=True)
    }


def _asks(draft: Draft, wanted: list[Index]) -> list[Ask]:
    counts: dict[str, int] = {}
    for name, _ in wanted:
        counts[name] = counts.get(name, 0) + 1
    return [(role, counts[role.name]) for role in draft.form.roles if role.name in counts]
