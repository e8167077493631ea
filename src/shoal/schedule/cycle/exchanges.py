"""Whether an exchange brings the cluster nearer to what everybody is due, or no farther from it.

Each exchange that does makes the potential of `shares.standing` fall, so that they come to an end. What
this plan alone has given is left out: that may be taken back while it is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.rows import Task
from shoal.schedule.shares.standing import change, idle_part

__all__ = ["ends"]


def ends(desk: Desk, asked: Asked, counts: Sequence[int], leaving: Mapping[str, Sequence[Task]]) -> bool:
    """Whether the potential does not rise as these tasks leave for so many of each role of this job."""
    old = {name: tasks for name, tasks in leaving.items() if not desk.is_new(name)}
    if not old:
        return True
    ask = asked.ask(counts, new=False)
    before, after = desk.later.ledger.copy(), desk.later.ledger.copy()
    for queue, amounts in desk.new_holdings():
        before.charge(queue, amounts, -1)
        after.charge(queue, amounts, -1)
    before.charge(asked.queue, idle_part(before, ask))
    after.charge(asked.queue, ask)
    for name, tasks in old.items():
        other = desk.asked[name]
        after.charge(other.queue, other.ask(other.counts(tasks), new=False), -1)
    return change(before, after) <= 0
