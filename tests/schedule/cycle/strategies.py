"""Clusters in the middle of things, for hypothesis: what runs is there by plans, and then much
changes."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from shoal.objects.node import Taint
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules
from shoal.simulate.cluster.world import World

__all__ = ["NOW", "situations"]

NOW = 1000.0
change = msgspec.structs.replace


def _some(keys: st.SearchStrategy[float]) -> st.SearchStrategy[dict[str, float]]:
    """Of GPUs, or nothing said."""
    return st.one_of(st.just({}), st.builds(lambda amount: {"gpu": amount}, keys))


@st.composite
def _queues(draw: st.DrawFn, gpus: int) -> tuple[Queue, ...]:
    """A tree of two levels, some leaves at the top."""
    found: list[Queue] = []
    tops = draw(st.integers(1, 3))
    for top in range(tops):
        inner = draw(st.sampled_from([0, 0, 2, 3]))
        leaves = [f"q{top}.{at}" for at in range(inner)] or [f"q{top}"]
        if inner:
            found.append(Queue(name=f"q{top}", weight=draw(st.sampled_from([0.5, 1.0, 2.0]))))
        for name in leaves:
            own = float(draw(st.integers(0, gpus // (tops * len(leaves)))))
            found.append(
                Queue(
                    name=name,
                    parent=f"q{top}" if inner else "",
                    nominal={"gpu": own},
                    guaranteed={"gpu": own // 2} if draw(st.booleans()) else {},
                    limit=draw(_some(st.integers(int(own) + 1, gpus + 8).map(float))),
                    borrowing=draw(_some(st.integers(0, gpus).map(float))),
                    weight=draw(st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0])) or 1.0,
                    priority=draw(st.sampled_from([0, 0, 1])),
                    fenced=draw(st.sampled_from([False, False, False, True])),
                    jobs=draw(st.sampled_from([None, None, None, 1, 3])),
                    user_limit=draw(_some(st.integers(1, gpus).map(float))),
                    minimum_seconds=draw(st.sampled_from([0.0, 0.0, 50.0])),
                )
            )
    return tuple(found)


@st.composite
def _roles(draw: st.DrawFn, racks: bool) -> tuple[Role, ...]:
    least = draw(st.integers(1, 4))
    size: dict[str, Any] = draw(
        st.sampled_from(
            [
                {"gpus": 1},
                {"gpus": 1},
                {"gpus": 2},
                {"gpus": 4},
                {"gpus": 0},
                {"share": 250},
                {"share": 700},
            ]
        )
    )
    worker = Role(
        minimum=least,
        maximum=least + draw(st.sampled_from([0, 0, 1, 4])),
        amounts={"cpu": draw(st.integers(0, 3))},
        required=draw(st.sampled_from(["", "", "", "rack"])) if racks else "",
        **size,
    )
    if draw(st.integers(0, 4)):
        return (worker,)
    return (Role(name="server", amounts={"cpu": 1}), worker)


@st.composite
def _job(draw: st.DrawFn, name: str, leaves: list[str], racks: bool, now: float) -> Job:
    roles = draw(_roles(racks))
    most = sum(role.maximum for role in roles)
    return Job(
        name=name,
        minimum=draw(st.sampled_from([0, 0, 0, most, max(1, most - 1)])),
        queue=draw(st.sampled_from(leaves)),
        user=draw(st.sampled_from(["ann", "bob"])),
        priority=draw(st.sampled_from([0, 0, 0, 1, 5])),
        created=now - draw(st.integers(0, 700)),
        roles=roles,
        preemptible=draw(st.integers(0, 7)) > 0,
        wall_seconds=draw(st.sampled_from([None, None, 20.0, 300.0, 2000.0])),
        grace_seconds=draw(st.sampled_from([0.0, 30.0])),
        required="rack" if racks and draw(st.integers(0, 9)) == 0 else "",
        preferred="rack" if racks and draw(st.integers(0, 9)) == 0 else "",
        spread="rack" if racks and draw(st.integers(0, 9)) == 0 else "",
        shared={"licence": 1} if draw(st.integers(0, 9)) == 0 else {},
    )


@st.composite
def situations(draw: st.DrawFn) -> tuple[Cluster, Rules, float]:
    """Rows, how to decide, and when. Nobody is over any limit; reserved places are there because plans
    have kept them, and tasks stop because plans said so."""
    racks = draw(st.booleans())
    nodes = tuple(
        Node(
            name=f"n{at}",
            gpus=draw(st.sampled_from([1, 2, 4, 8])),
            amounts={"cpu": draw(st.sampled_from([4, 16]))},
            labels={"rack": f"r{at % 2}"} if racks else {},
        )
        for at in range(draw(st.integers(1, 5)))
    )
    queues = draw(_queues(sum(node.gpus for node in nodes)))
    above = {queue.parent for queue in queues}
    leaves = [queue.name for queue in queues if queue.name not in above]
    rules = Rules(
        starving_seconds=draw(st.sampled_from([100.0, 1e9])),
        minimum_run_seconds=draw(st.sampled_from([0.0, 60.0])),
        beyond_nominal=draw(st.booleans()),
        consolidate=draw(st.booleans()),
    )
    levels = ("rack",) if racks else ()
    world = World(Cluster(nodes=nodes, queues=queues, levels=levels, shared={"licence": 2}), rules)
    now = NOW
    for wave in range(draw(st.integers(1, 3))):
        now += draw(st.sampled_from([1.0, 70.0, 320.0]))
        for at in range(draw(st.integers(1, 4))):
            world.submit(draw(_job(f"j{wave}-{at}", leaves, racks, now)))
        _happen(draw, world, now)
        if draw(st.booleans()):
            world.decide(now)
    return world.cluster, rules, now


def _happen(draw: st.DrawFn, world: World, now: float) -> None:
    """Of what happens to clusters, something."""
    what = draw(
        st.sampled_from(["nothing", "gone", "finish", "lose", "back", "suspend", "drain", "resize"])
    )
    name = draw(st.sampled_from(sorted(world.jobs)))
    node = draw(st.sampled_from(sorted(world.nodes)))
    match what:
        case "gone":
            for each in list(world.jobs):
                world.gone(each)
        case "finish" if world.jobs[name].present:
            world.finish(name, now)
        case "lose":
            world.lose(node, now)
        case "back":
            world.back(node)
        case "suspend":
            world.jobs[name] = change(world.jobs[name], suspended=True)
        case "drain":
            taint = Taint(key="drain", effect="NoExecute")
            world.nodes[node] = change(world.nodes[node], taints=(taint,))
            world.back(node)
        case "resize":
            role = world.jobs[name].roles[-1]
            world.resize(name, role.name, draw(st.integers(1, 6)))
        case _:
            pass
