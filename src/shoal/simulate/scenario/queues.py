"""The queues of a scenario; without any there is one that nothing is stated of, `default`.

queues:
  - {name: research, nominal: {gpu: 8, cpu: 64}, limit: {gpu: 16}, weight: 2}
  - {name: vision, parent: research, guaranteed: {gpu: 2}, budgets: [{name: spring, hours: 500}]}
"""

from __future__ import annotations

from shoal.schedule.cycle.rows import Budget, Queue
from shoal.simulate.scenario.spot import Spot

__all__ = ["KEYS", "read_queues"]

KEYS = (
    "name",
    "parent",
    "nominal",
    "guaranteed",
    "limit",
    "borrowing",
    "lending",
    "weight",
    "priority",
    "fenced",
    "jobs",
    "namespaces",
    "userLimit",
    "userJobs",
    "minimumRun",
    "budgets",
)


def read_queues(spot: Spot | None) -> tuple[Queue, ...]:
    """Raises `BadInput`, also where two have one name or a parent is missing."""
    if spot is None:
        return (Queue(name="default"),)
    queues: list[Queue] = []
    names: set[str] = set()
    for entry in spot.items():
        queue = _queue(entry)
        if queue.name in names:
            raise entry.wrong(f"there are two queues {queue.name}")
        names.add(queue.name)
        queues.append(queue)
    for entry, queue in zip(spot.items(), queues, strict=True):
        if queue.parent and queue.parent not in names:
            raise entry.wrong(f"there is no queue {queue.parent} to be the parent of {queue.name}")
    return tuple(queues)


def _queue(entry: Spot) -> Queue:
    fields = entry.fields(KEYS)
    budgets = fields.get("budgets")
    weight = fields.get("weight")
    priority = fields.get("priority")
    return Queue(
        name=fields.need("name").text(),
        parent=fields.text("parent"),
        nominal=fields.quotas("nominal"),
        guaranteed=fields.quotas("guaranteed"),
        limit=fields.quotas("limit"),
        borrowing=fields.quotas("borrowing"),
        lending=fields.quotas("lending"),
        weight=1.0 if weight is None else weight.number(),
        priority=0 if priority is None else priority.signed(),
        fenced=fields.flag("fenced", False),
        jobs=fields.optional_number("jobs"),
        namespaces=fields.texts("namespaces"),
        user_limit=fields.quotas("userLimit"),
        user_jobs=fields.optional_number("userJobs"),
        minimum_seconds=fields.seconds("minimumRun"),
        budgets=() if budgets is None else tuple(_budget(part) for part in budgets.items()),
    )


def _budget(entry: Spot) -> Budget:
    fields = entry.fields(("name", "resource", "hours", "spent"))
    spent = fields.get("spent")
    return Budget(
        name=fields.need("name").text(),
        resource=fields.text("resource", "gpu"),
        hours=fields.need("hours").number(),
        spent=0.0 if spent is None else spent.number(),
    )
