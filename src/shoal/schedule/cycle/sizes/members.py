"""Who is sized together: jobs of one queue and for the same nodes that say how fast they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.rows import Role

__all__ = ["Key", "Member", "groups"]

Key = tuple[int, int, bool, bool]
"""Queue, nodes, whole GPUs or parts of one."""


@dataclass(frozen=True)
class Member:
    """A job that says how fast it is. Counts are tasks of its elastic role."""

    asked: Asked
    at: int
    """Which of its roles."""
    held: int
    """There, or kept for it."""
    least: int
    """It runs with no fewer."""

    @property
    def role(self) -> Role:
        """Of which it may have more or fewer tasks."""
        return self.asked.job.roles[self.at]


def groups(desk: Desk, waiting: Sequence[Asked]) -> Iterator[tuple[Key, list[Member]]]:
    """Of one queue and for the same nodes, by kind of task; the highest priority first, who holds
    something before who waits, and these in their order."""
    if not desk.sized:
        return
    rank = {asked.job.name: at for at, asked in enumerate(waiting)}
    kept = {asked.job.name: counts for asked, counts in desk.kept_for()}
    found: dict[Key, list[Member]] = {}
    for name in desk.sized:
        asked = desk.asked[name]
        at = asked.sized
        if at is None or name in desk.ending or asked.job.suspended:
            continue
        present = desk.present.get(name, ())
        if not present and name not in kept and name not in rank:
            continue
        held = asked.there if present is asked.present else asked.counts(present)
        more = kept[name][at] if name in kept else 0
        shape = asked.shapes[at]
        key = (desk.queue(asked.job), shape.suits, shape.gpus > 0, shape.share > 0)
        found.setdefault(key, []).append(Member(asked, at, held[at] + more, max(1, asked.minimum[at])))
    for key in sorted(found):
        yield (
            key,
            sorted(
                found[key],
                key=lambda member: (
                    -member.asked.job.priority,
                    member.held == 0,
                    rank.get(member.asked.job.name, -1),
                    member.asked.job.created,
                    member.asked.job.name,
                ),
            ),
        )
