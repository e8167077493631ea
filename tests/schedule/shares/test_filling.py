from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule.shares.filling import fill
from shoal.schedule.shares.tree import tree


def slowly(parents, wish, weight, room, capacity, priority):
    """From one event to the next in exact numbers: who rises, how fast, and what ends first."""
    count, resources = len(parents), range(len(capacity))
    children = {q: [c for c in range(count) if parents[c] == q] for q in range(-1, count)}
    above = {q: [q] if parents[q] < 0 else None for q in range(count)}

    def path(queue):
        return [] if queue < 0 else [queue, *path(parents[queue])]

    above = {q: path(q) for q in range(count)}
    given = [[Fraction(0)] * len(capacity) for _ in range(count)]
    left = []
    for q in range(count):
        part = min([Fraction(1)] + [Fraction(room[q][k]) / wish[q][k] for k in resources if wish[q][k]])
        left.append([part * wish[q][k] if not children[q] else Fraction(0) for k in resources])

    def used(queue, k):
        return sum(
            (given[leaf][k] for leaf in range(count) if queue < 0 or queue in above[leaf]), Fraction(0)
        )

    def bounds():
        yield from (([q for q in range(count) if top in above[q]], top, k, room[top][k])
                    for top in range(count) for k in resources)  # fmt: skip
        yield from ((list(range(count)), -1, k, capacity[k]) for k in resources)

    def rises(leaf):
        if not any(left[leaf]) or any(weight[node] == 0 for node in above[leaf]):
            return False
        return not any(
            leaf in inside and left[leaf][k] and used(node, k) >= bound
            for inside, node, k, bound in bounds()
        )

    def speeds(queue):
        """Per resource and leaf below, while the level of the queue rises by one."""
        if queue >= 0 and not children[queue]:
            share = max(Fraction(left[queue][k]) / capacity[k] for k in resources)
            return {queue: [left[queue][k] / share for k in resources]}
        going = [
            c for c in children[queue] if any(rises(leaf) for leaf in range(count) if c in above[leaf])
        ]
        first = max(priority[c] for c in going)
        found = {}
        for child in going:
            if priority[child] == first:
                for leaf, vector in speeds(child).items():
                    found[leaf] = [weight[child] * v for v in vector]
        share = max(sum(v[k] for v in found.values()) / capacity[k] for k in resources)
        return {leaf: [v / share for v in vector] for leaf, vector in found.items()}

    while any(rises(leaf) for leaf in range(count)):
        speed = speeds(-1)
        ends = [left[leaf][k] / v[k] for leaf, v in speed.items() for k in resources if v[k]]
        for inside, node, k, bound in bounds():
            rate = sum(speed[leaf][k] for leaf in inside if leaf in speed)
            if rate and bound != np.inf:
                ends.append((bound - used(node, k)) / rate)
        step = min(ends)
        for leaf, vector in speed.items():
            for k in resources:
                given[leaf][k] += step * vector[k]
                left[leaf][k] -= step * vector[k]
    return [[float(used(q, k)) for k in resources] for q in range(count)]


@settings(max_examples=35, deadline=None)
@given(st.data())
def test_the_lines_agree_with_going_from_event_to_event(data):
    count, resources = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 3))
    parents = [data.draw(st.integers(-1, at - 1)) for at in range(count)]

    def table(values):
        row = st.lists(values, min_size=resources, max_size=resources)
        return data.draw(st.lists(row, min_size=count, max_size=count))

    wish = table(st.integers(0, 6))
    room = table(st.sampled_from([0, 1, 3, 5, np.inf, np.inf, np.inf]))
    room = [[Fraction(v) if v != np.inf else v for v in row] for row in room]
    capacity = data.draw(st.lists(st.integers(1, 9), min_size=resources, max_size=resources))
    weight = data.draw(st.lists(st.sampled_from([1, 1, 1, 2, 3, 0]), min_size=count, max_size=count))
    priority = data.draw(st.lists(st.sampled_from([0, 0, 0, 1]), min_size=count, max_size=count))
    room = [[10**6 if v == np.inf else v for v in row] for row in room]
    expected = slowly(parents, wish, weight, room, capacity, priority)
    found = fill(
        tree(parents),
        np.array(wish, dtype=float),
        np.array(weight, dtype=float),
        np.array(room, dtype=float),
        np.array(capacity, dtype=float),
        np.array(priority),
    )
    assert found == pytest.approx(np.array(expected), abs=1e-7)


def test_families_share_before_their_members_do():
    """Kueue KEP-1714, story 3: 300 GPUs, two families alike; in one a member weighs three times more."""
    parents = tree([-1, -1, 0, 0, 0, 1])
    weight = np.array([1.0, 1.0, 1.0, 1.0, 3.0, 1.0])
    wish = np.array([[0.0], [0.0], [300.0], [300.0], [300.0], [300.0]])
    found = fill(parents, wish, weight, np.full((6, 1), np.inf), np.array([300.0]))
    assert found[:, 0] == pytest.approx([150, 150, 30, 30, 90, 150])


def test_what_no_capacity_bounds_costs_nothing_but_has_its_room():
    """The second resource counts jobs: they are no share of the cluster, but one queue may have two."""
    wish = np.array([[4.0, 4.0], [4.0, 4.0], [0.0, 4.0]])
    room = np.array([[np.inf, 2.0], [np.inf, np.inf], [np.inf, np.inf]])
    found = fill(tree([-1, -1, -1]), wish, np.ones(3), room, np.array([6.0, np.inf]))
    assert found == pytest.approx(np.array([[2.0, 2.0], [4.0, 4.0], [0.0, 4.0]]), abs=1e-5)


def test_of_what_there_is_none_nobody_gets_anything():
    wish = np.array([[1.0, 1.0], [1.0, 0.0]])
    found = fill(tree([-1, -1]), wish, np.ones(2), np.full((2, 2), np.inf), np.array([4.0, 0.0]))
    assert found.tolist() == [[0.0, 0.0], [1.0, 0.0]]


def test_equal_input_gives_equal_bytes():
    generator = np.random.default_rng(5)
    parents = tree([-1] * 5 + generator.integers(0, 5, 60).tolist())
    wish, weight = generator.random((65, 4)), generator.random(65)
    capacity = wish.sum(axis=0) / 3
    results = {
        fill(parents, wish.copy(), weight, np.full((65, 4), np.inf), capacity).tobytes()
        for _ in range(3)
    }
    assert len(results) == 1
