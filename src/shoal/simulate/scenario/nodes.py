"""The machines of a scenario.

nodes:
  - {count: 2, gpus: 4, cpu: 32, memory: 128Gi, labels: {rack: r1}}   # node0, node1
  - {gpus: 8}                                                         # node2
  - {name: large, gpus: 16, taints: [{key: large}]}
"""

from __future__ import annotations

import msgspec

from shoal.objects.node import Taint
from shoal.schedule.cycle.rows import Node
from shoal.simulate.scenario.spot import Spot

__all__ = ["KEYS", "MOST_AT_ONCE", "read_nodes"]

MOST_AT_ONCE = 100_000
"""Of nodes or jobs that one entry of the file stands for."""

KEYS = (
    "name",
    "count",
    "gpus",
    "cpu",
    "memory",
    "amounts",
    "labels",
    "taints",
    "ready",
    "schedulable",
)


def read_nodes(spot: Spot) -> tuple[Node, ...]:
    """Entries with a `count`, and those without a name, are numbered through from 0 behind their name
    (`node` unless it is given). Raises `BadInput`, also where two have one name."""
    nodes: list[Node] = []
    numbered: dict[str, int] = {}
    names: set[str] = set()
    for entry in spot.items():
        fields = entry.fields(KEYS)
        name, count = fields.get("name"), fields.get("count")
        stem = name.text() if name is not None else "node"
        made = 1 if count is None else count.whole(least=1)
        if made > MOST_AT_ONCE:
            raise entry.wrong(f"count is at most {MOST_AT_ONCE}")
        alike = Node(
            name=stem,
            amounts=fields.amounts(),
            gpus=fields.whole_number("gpus"),
            labels=fields.labels("labels"),
            taints=_taints(fields.get("taints")),
            ready=fields.flag("ready", True),
            schedulable=fields.flag("schedulable", True),
        )
        for _ in range(made):
            title = stem
            if name is None or count is not None:
                title = f"{stem}{numbered.get(stem, 0)}"
                numbered[stem] = numbered.get(stem, 0) + 1
            if title in names:
                raise entry.wrong(f"there are two nodes {title}")
            names.add(title)
            nodes.append(msgspec.structs.replace(alike, name=title))
    return tuple(nodes)


def _taints(spot: Spot | None) -> tuple[Taint, ...]:
    if spot is None:
        return ()
    try:
        return tuple(msgspec.convert(part.value, Taint) for part in spot.items())
    except msgspec.ValidationError as error:
        raise spot.wrong(f"taints are key, value and effect: {error}") from error
