"""When those start who wait for capacity, and who may start before them.

| code | means |
| --- | --- |
| Dated | it starts at the date, when those who run have had their wall time |
| Aside | it has starved, and what it asks for is kept as it comes free |
| Behind | there is room, which those before it will need |
| BeyondDepth | so many wait before it that it was not looked at |
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.objects.meta import Stamp
from shoal.schedule.backfill.asks import Capacity, Settings, Waiting, Work
from shoal.schedule.backfill.plan import Plan as Planned
from shoal.schedule.backfill.plan import Verdict, plan
from shoal.schedule.backfill.turns import planned_seconds, turn_ends
from shoal.schedule.cycle.ahead import Ahead
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.laid import Laid
from shoal.schedule.cycle.needs import Needs
from shoal.schedule.cycle.rows import Job

__all__ = ["Dates"]

Floats = NDArray[np.float64]

_THOUSANDTHS = 1000
_CODES = {
    Verdict.RESERVED: "Dated",
    Verdict.BEYOND_HORIZON: "Dated",
    Verdict.ASIDE: "Aside",
    Verdict.BEYOND_DEPTH: "BeyondDepth",
}

_VERDICTS = {int(verdict): verdict for verdict in Verdict}


_Amounts = tuple[int, ...]


class _Row(NamedTuple):
    """Those who hold something: what one of them holds and does not lend."""

    held: _Amounts
    shared: _Amounts
    ends: Stamp
    turn: Stamp
    """When their turn began; infinity where they have none."""


class _Holders(NamedTuple):
    """All of them."""

    same: NDArray[np.int64]
    """Rows of `Table.holdings`."""
    others: Counter[_Row]
    """How many are alike."""
    lent: NDArray[np.int64]
    """By all of them together."""


class Dates:
    """Of all who wait from the first on that found no capacity, in their order."""

    def __init__(self, desk: Desk, order: Sequence[Asked], ahead: Ahead) -> None:
        self._desk, self._ahead = desk, ahead
        self._resources = len(desk.columns.names) - 1
        self._lets: dict[tuple[int, str, tuple[float, ...]], bool] = {}
        self._licences = tuple(sorted(desk.cluster.shared))
        waiting = [each for each in order if not each.present and self._allowed(each)]
        self._rows = {asked.job.name: at for at, asked in enumerate(waiting)}
        self._plan: Planned | None = None
        self._found: list[tuple[Verdict, Stamp]] = []
        self.again_at: Stamp | None = None
        if waiting:
            self._settings = Settings(
                depth=desk.rules.depth,
                resolution_seconds=desk.rules.resolution_seconds,
                slack_seconds=0.0,
                notice_seconds=desk.rules.notice_seconds,
                lateness_seconds=desk.rules.notice_seconds,
            )
            self._holders = self._gathered()
            self._plan = plan(
                self._capacity(), self._work(), self._waiting(waiting), self._settings, desk.now
            )
            verdicts: list[int] = self._plan.verdict.tolist()
            self._found = [
                (_VERDICTS[verdict], start)
                for verdict, start in zip(verdicts, self._plan.start.tolist(), strict=True)
            ]
            dated = self._plan.start[self._plan.start > desk.now]
            if len(dated) and math.isfinite(float(dated.min())):
                # what is lent, and whose turn is over then, is told before
                first = float(dated.min())
                early = first - self._settings.notice_seconds
                self.again_at = early if early > desk.now else first

    def soon(self, asked: Asked) -> bool:
        """Whether its date is no farther off than the notice."""
        found = self._of(asked)
        return found is None or found[1] <= self._desk.now + self._desk.rules.notice_seconds

    def starts(self, asked: Asked) -> Stamp:
        """When, as far as that is known; else infinity."""
        found = self._of(asked)
        return math.inf if found is None else found[1]

    def may_start(self, asked: Asked) -> bool:
        """Whether nobody before it starts later for it."""
        found = self._of(asked)
        return found is None or found[0] in (Verdict.START, Verdict.TOO_LARGE)

    def knows(self, asked: Asked) -> bool:
        """Whether capacity alone is in its way."""
        return asked.job.name in self._rows

    def keeps(self, asked: Asked) -> bool:
        """Whether something is kept for it: from a date on, or as it comes free."""
        found = self._of(asked)
        return found is not None and found[0] in _CODES and found[0] != Verdict.BEYOND_DEPTH

    def answer(self, asked: Asked, laid: Laid | None) -> list[tuple[str, dict[str, Any]]]:
        """Why it waits, and until when, in its place if it has one; empty: what there is has to say
        it."""
        if laid is not None:
            return [("Dated", {"at": laid.start})]
        found = self._of(asked)
        code = _CODES.get(found[0]) if found is not None else None
        if found is None or code is None:
            return []
        return [(code, {"at": found[1]} if code == "Dated" else {})]

    def promised(self, asked: Asked) -> Stamp | None:
        """The date that it is promised, for sums are enough to hold it."""
        found = None if self._ahead.exact else self._of(asked)
        return found[1] if found is not None and found[0] == Verdict.RESERVED else None

    def _of(self, asked: Asked) -> tuple[Verdict, Stamp] | None:
        """What the plan says of it, and when it starts; None: it is not in the plan."""
        at = self._rows.get(asked.job.name)
        return None if at is None else self._found[at]

    def _allowed(self, asked: Asked) -> bool:
        """Queues would let it, so that capacity alone is in the way."""
        later = self._desk.later
        user = asked.job.user if later.users.capped else ""
        key = (asked.queue, user, amounts := asked.ask(asked.minimum, new=True))
        if key not in self._lets:
            refused = later.refusal(asked, amounts)
            self._lets[key] = refused is None or refused.rule == "Capacity"
        return self._lets[key]

    def _capacity(self) -> Capacity:
        pools = self._whole()[None, :]
        licences = np.array([self._desk.cluster.shared[each] for each in self._licences], dtype=np.int64)
        return Capacity(pools, licences, self._holders.lent[None, :])

    def _whole(self) -> NDArray[np.int64]:
        """All that there is: of tasks of one shape, what so many take as there are places for."""
        if self._ahead.places is not None:
            return np.array(self._ahead.places, dtype=np.int64)
        total = self._desk.columns.total[:-1].copy()
        total[-1] *= _THOUSANDTHS
        return total.astype(np.int64)

    def _turn(self, seconds: Floats) -> Floats:
        turn = self._desk.rules.minimum_run_seconds
        return planned_seconds(seconds, turn) if turn else seconds

    def _gathered(self) -> _Holders:
        """Who holds what it held when this decision began is in rows already; who is about to end is not
        taken from there: it lends nothing."""
        desk = self._desk
        apart = desk.touched() | desk.ending
        same = desk.holdings.rows(apart)
        lent: NDArray[np.int64] = desk.holdings.lent[same].sum(axis=0)
        parted: dict[tuple[Needs, tuple[int, ...], bool], tuple[_Amounts, _Amounts]] = {}
        rows = Counter[_Row]()
        fresh: dict[tuple[int, float, tuple[int, ...]], _Row] = {}
        """Of those who are started in this plan and lend nothing, by what theirs turn on: tens of
        thousands may be alike, and whoever holds something already is of another kind."""
        for name, there in desk.present.items():
            if name not in apart:
                continue
            asked = desk.asked[name]
            job, counts = asked.job, asked.counts(there)
            alike = (asked.kind, job.longest_seconds, counts)
            if alike in fresh:
                rows[fresh[alike]] += 1
                continue
            kind = (asked.needs, counts, job.preemptible and name not in desk.ending)
            if kind not in parted:
                parted[kind] = _parted(*kind)
            held, more = parted[kind]
            if more and (asked.needs.elastic or there is not asked.present):
                lent += more
            ends = asked.ends if asked.present else desk.now + job.longest_seconds
            began = job.since if asked.present else desk.now
            turn = began if job.preemptible else math.inf
            row = _Row(held, self._shared(job), ends, turn)
            rows[row] += 1
            if not (job.tasks or more):
                fresh[alike] = row
        return _Holders(same, rows, lent)

    def _work(self) -> Work:
        """Who holds something, who was kept a place, and who goes."""
        desk = self._desk
        known, same, rows = desk.holdings, self._holders.same, self._holders.others
        for asked, counts in desk.kept_for():
            begins = desk.free_at(asked)
            ends = begins + asked.job.longest_seconds
            rows[_Row(asked.needs.amounts(counts), self._shared(asked.job), ends, begins)] += 1
        n, more, wide = len(same), len(rows), len(self._licences)
        times = np.array(list(rows.values()), dtype=np.int64).reshape(more, 1)
        held = np.array([row.held for row in rows], dtype=np.int64).reshape(more, self._resources)
        taken = np.array([row.shared for row in rows], dtype=np.int64).reshape(more, wide)
        licences = [self._shared(asked.job) for asked in known.of(same)] if wide else []
        shared = np.array(licences, dtype=np.int64).reshape(n, wide)
        end = np.concatenate((known.ends[same], [row.ends for row in rows]))
        if desk.rules.minimum_run_seconds:
            since = np.where(known.firm[same], math.inf, known.since[same])
            since = np.concatenate((since, [row.turn for row in rows]))
            turns = turn_ends(since, end, desk.rules.minimum_run_seconds, self._settings, desk.now)
            end = turns.end
        return Work(
            pool=np.zeros(n + more, dtype=np.int64),
            amounts=np.concatenate((known.held[same], times * held)),
            shared=np.concatenate((shared, times * taken)),
            end=end,
        )

    def _waiting(self, waiting: Sequence[Asked]) -> Waiting:
        desk, m = self._desk, len(waiting)
        jobs = [asked.job for asked in waiting]
        classes = np.array([desk.class_of(asked) for asked in waiting], dtype=np.int64)
        promised = [self._date(asked) for asked in waiting]
        since = np.array([desk.now - job.waiting_since for job in jobs])
        return Waiting(
            key=np.array([asked.number for asked in waiting], dtype=np.int64),
            rank=np.minimum.accumulate(classes),
            amounts=np.array([asked.needs.least for asked in waiting], dtype=np.int64).reshape(
                m, self._resources
            ),
            pools=np.ones((m, 1), dtype=np.bool_),
            shared=np.array([self._shared(job) for job in jobs], dtype=np.int64).reshape(
                m, len(self._licences)
            ),
            seconds=self._turn(np.array([job.longest_seconds for job in jobs], dtype=np.float64)),
            promised=np.array(promised, dtype=np.float64),
            promised_pool=np.where(np.isfinite(promised), 0, -1).astype(np.int64),
            fixed=np.array([self._ahead.of(asked) is not None for asked in waiting], dtype=np.bool_),
            starved=since >= desk.rules.starving_seconds,
        )

    def _date(self, asked: Asked) -> Stamp:
        """That it was promised, as it is now; infinity: none."""
        laid, promised = self._ahead.of(asked), asked.job.promised
        if laid is not None:
            return laid.start
        return math.inf if promised is None or self._ahead.exact else promised

    def _shared(self, job: Job) -> _Amounts:
        return tuple([job.shared.get(name, 0) for name in self._licences]) if self._licences else ()


def _parted(needs: Needs, counts: tuple[int, ...], lends: bool) -> tuple[_Amounts, _Amounts]:
    """What so many tasks of each role hold and do not lend, and what they lend, if anything. Who ends
    before it could give back what it was asked for holds it all until then."""
    over = tuple([max(0, count - low) for count, low in zip(counts, needs.minimum, strict=True)])
    if not lends or not any(over):
        return needs.amounts(counts), ()
    rest = tuple([count - more for count, more in zip(counts, over, strict=True)])
    return needs.amounts(rest), needs.amounts(over)
