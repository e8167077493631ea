"""FGD against its definition, worked out from scratch for every pod, node and GPU."""

import math
import random

import numpy as np
import pytest

from shoal.simulate.packing.fitting import typical
from shoal.simulate.packing.fleet import Fleet
from shoal.simulate.packing.fragments import Fragments
from shoal.simulate.packing.states import requests_of
from shoal.simulate.packing.where import Where
from tests.simulate.packing.small import nodes_of, pods_of, state

ROWS = (
    *["3000,1,1,400"] * 5,
    *["1000,1,1,700"] * 4,
    *["2000,1,1,1000"] * 4,
    *["500,1,0,0"] * 3,
    *["6000,1,2,1000"] * 2,
)


def fragment(cpu, gpus, shapes):
    """By the words of the definition; `gpus` are those that the node has."""
    total = 0.0
    for (wanted, count, milli), weight in shapes.items():
        able = [free for free in gpus if free >= milli]
        if count == 0 or cpu < wanted or len(able) < count:
            total += weight * sum(gpus)
        else:
            total += weight * sum(free for free in gpus if free < milli)
    return total


def shapes_of(rows):
    wanted = [tuple(int(cell) for cell in row.split(",")) for row in rows]
    return {
        (cpu, count, milli): wanted.count((cpu, memory, count, milli)) / len(wanted)
        for cpu, memory, count, milli in wanted
    }


def test_the_fragment_of_a_node_is_what_the_typical_pod_cannot_use(tmp_path):
    nodes = nodes_of(tmp_path, "8000,8000,4,T4")
    value = Fragments(typical(pods_of(tmp_path, *ROWS), nodes, 1.0, idle=True))
    for cpu in (0, 500, 1000, 2999, 3000, 8000):
        for gpus in ([0, 0, 0, 0], [300, 400, 699, 1000], [700, 700, 1000, 1000], [1000] * 4):
            expected = -fragment(cpu, gpus, shapes_of(ROWS))
            # memory plays no part
            assert value.value(state(cpu, 0, *gpus)).tolist() == [pytest.approx(expected)]


def test_scores_are_whole_percents(tmp_path):
    nodes = nodes_of(tmp_path, "8000,8000,4,T4")
    value = Fragments(typical(pods_of(tmp_path, *ROWS), nodes, 1.0, idle=True))
    after, before = np.array([0.0, -1000.0, 1000.0, 5.0]), np.zeros(4)
    assert value.score(after, before).tolist() == [50, 26, 73, 50]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_pod_goes_where_the_definition_says(tmp_path, seed):
    chance = random.Random(seed)
    kinds = ["9000,50,4,T4", "4000,50,2,T4", "16000,50,4,A10"]
    nodes = nodes_of(tmp_path, *(chance.choice(kinds) for _ in range(6)))
    pods = pods_of(tmp_path, *ROWS)
    asked, shapes = requests_of(pods.shapes, nodes), shapes_of(ROWS)
    policy, fleet = Where(asked, Fragments(typical(pods, nodes, 1.0, idle=True))), Fleet(nodes)
    cpu = nodes.cpu.tolist()
    gpus = [[1000] * count for count in nodes.gpus.tolist()]
    refused = 0
    for _ in range(60):
        shape = int(chance.choice(pods.shape.tolist()))
        wanted = asked[shape]
        best = None
        for node in range(len(cpu)):
            for place in _places(gpus[node], wanted, cpu[node]):
                before = fragment(cpu[node], gpus[node], shapes)
                after = fragment(cpu[node] - wanted.cpu, place[1], shapes)
                percent = math.floor(100 / (1 + math.exp((after - before) / 1000)))
                if best is None or percent > best[0]:
                    best = (percent, node, place)
        found = policy.choose(fleet, shape)
        if best is None:
            assert found is None
            refused += 1
            continue
        assert found is not None
        assert found.node == best[1]
        slots = fleet.place(found, wanted)
        cpu[found.node] -= wanted.cpu
        for slot in slots:
            gpus[found.node][slot] -= wanted.milli
        assert sorted(gpus[found.node]) == sorted(best[2][1])
    assert refused > 0


def _places(gpus, wanted, cpu):
    """The amount free on the GPU, least first, and what would be left of each."""
    able = [slot for slot, free in enumerate(gpus) if free >= max(1, wanted.milli)]
    if cpu < wanted.cpu or len(able) < wanted.gpus:
        return
    if wanted.gpus == 0:
        yield 0, list(gpus)
    elif wanted.shared:
        for slot in sorted(able, key=lambda each: gpus[each]):
            yield gpus[slot], [free - wanted.milli * (at == slot) for at, free in enumerate(gpus)]
    else:
        yield 0, [free - 1000 * (at in able[: wanted.gpus]) for at, free in enumerate(gpus)]
