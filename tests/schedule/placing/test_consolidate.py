from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule.placing.asks import Gang, Group
from shoal.schedule.placing.consolidate import Mover, consolidate
from shoal.schedule.placing.place import place
from tests.schedule.placing.small import cores, gang, gpus, on, room, running, share, within
from tests.schedule.placing.torn import miscounted, overcommitted, torn


def at(here, shape, *where, **rest):
    """A job that runs there."""
    tasks = running(shape, *where)
    here.occupy(tasks)
    return Mover(gang(shape, len(where), **rest), (tasks,))


def test_one_moves_and_three_start():
    """scheduling-C1: two nodes of 4 with a job of 2 each; 3 are asked for, then 2."""
    here = room(4, 4)
    movers = [at(here, gpus(2), (0, 0, 1)), at(here, gpus(2), (1, 0, 1))]
    assert place(here, gang(gpus(3), 1)) is None
    found = consolidate(here, gang(gpus(3), 1), movers)
    assert len(found.moves) == 1
    moved, to = found.moves[0]
    assert on(to) != on(movers[moved].placement)
    stays = movers[1 - moved].placement
    assert miscounted(here, [*found.start, *to, *stays]) == []
    assert place(here, gang(gpus(2), 1)) is None
    now = [Mover(gang(gpus(2), 1), to), Mover(gang(gpus(2), 1), stays)]
    assert consolidate(here, gang(gpus(2), 1), now) is None
    assert miscounted(here, [*found.start, *to, *stays]) == []


@pytest.mark.parametrize("nodes", [(2,), (1, 1)])
def test_two_halves_become_one(nodes):
    """scheduling-C2: a job of half a GPU on each of two; a whole one is asked for."""
    here = room(*nodes)
    second = (0, 1) if len(nodes) == 1 else (1, 0)
    movers = [at(here, share(500), (0, 0)), at(here, share(500), second)]
    found = consolidate(here, gang(gpus(1), 1), movers)
    assert len(found.moves) == 1
    assert sorted(here.slots.ravel().tolist()) == [0, 0]


def test_nobody_moves_for_nothing():
    here = room(4, 4)
    movers = [at(here, gpus(3), (0, 0, 1, 2)), at(here, gpus(3), (1, 0, 1, 2))]
    before = here.slots.copy()
    assert consolidate(here, gang(gpus(4), 1), movers) is None
    assert (here.slots == before).all()


def test_two_move_where_one_is_not_enough():
    here = room(4, 4, 4)
    movers = [at(here, gpus(1), (node, slot)) for node in range(3) for slot in range(2)]
    found = consolidate(here, gang(gpus(4), 1), movers)
    assert len(found.moves) == 2
    assert len({int(movers[job].placement[0].node[0]) for job, _ in found.moves}) == 1


def test_a_gang_over_several_nodes():
    here = room(4, 4, 4, 4)
    movers = [at(here, gpus(1), (node, 0)) for node in range(4)]
    found = consolidate(here, gang(gpus(4), 3), movers)
    assert len(found.moves) == 3
    assert len(set(found.start[0].node.tolist())) == 3
    assert consolidate(room(4, 4, 4, 4), gang(gpus(4), 5), []) is None


def test_no_more_move_than_may():
    here = room(4, 4, 4, 4)
    movers = [at(here, gpus(1), (node, 0)) for node in range(4)]
    assert consolidate(here, gang(gpus(4), 3), movers, most=2) is None


def test_who_leaves_has_room_made_for_it_in_turn():
    here = room(2, 2, 4)
    small = [at(here, gpus(1), (0, 0)), at(here, gpus(1), (0, 1)), at(here, gpus(1), (1, 0))]
    large = at(here, gpus(2), (2, 0, 1))
    found = consolidate(here, gang(gpus(3), 1), [*small, large])
    assert [(job, on(to)) for job, to in found.moves] in (
        [(2, [[2]]), (3, [[1, 1]])],
        [(2, [[2]]), (3, [[1]])],
    )
    assert on(found.start) == [[2]]


def test_a_rack_is_cleared_for_a_gang_that_has_to_be_in_one():
    here = room(4, 4, 4, 4, racks=[0, 0, 1, 1])
    movers = [
        at(here, gpus(2), (0, 0, 1), reach=within(0)),
        at(here, gpus(2), (2, 0, 1), reach=within(0)),
    ]
    found = consolidate(here, gang(gpus(4), 2, reach=within(0)), movers)
    assert len(found.moves) == 1
    assert len(set(here.topology.domain[0, found.start[0].node].tolist())) == 1


def test_cores_are_cleared_like_gpus():
    here = room(0, 0, cpu=8)
    movers = [at(here, cores(3), 0), at(here, cores(3), 0), at(here, cores(2), 1)]
    found = consolidate(here, gang(cores(7), 1), movers)
    assert [(job, on(to)) for job, to in found.moves] == [(2, [[0]])]
    assert consolidate(here, gang(cores(2), 1), movers[:2]) is None


def test_no_attempt_is_wasted_on_nodes_that_do_not_suit():
    here = room(2, 2, 2, suits=[[True] * 3, [False, True, True]])
    movers = [at(here, gpus(1), (node, 0)) for node in range(3)]
    found = consolidate(here, gang(gpus(2, suits=1), 1), movers, attempts=1)
    assert [job for job, _ in found.moves] == [1]


def test_workers_and_their_server_are_cleared_for_together():
    here = room(4, 4, cpu=8)
    movers = [at(here, gpus(1, cpu=2), (0, 0)), at(here, gpus(1, cpu=2), (1, 0))]
    asked = Gang((Group(gpus(4, cpu=1), 1, 1), Group(cores(4), 1, 1)))
    found = consolidate(here, asked, movers)
    assert len(found.moves) == 1
    assert torn(here.nodes, asked, found.start) == []


def fewest_moves(here, asked, movers):
    """By trying all sets, the small ones first."""
    for size in range(len(movers) + 1):
        for moved in combinations(range(len(movers)), size):
            mark = here.mark()
            for job in moved:
                here.give_back(movers[job].placement[0])
            done = place(here, asked) is not None and all(
                place(here, movers[job].gang) is not None
                for job in sorted(moved, key=lambda job: (-movers[job].gang.groups[0].shape.gpus, job))
            )
            here.rollback(mark)
            if done:
                return size
    return None


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_one_or_two_move_where_that_is_enough(data):
    here = room(*data.draw(st.lists(st.integers(2, 4), min_size=2, max_size=4)))
    movers = []
    for _ in range(data.draw(st.integers(1, 6))):
        shape = gpus(data.draw(st.integers(1, 2)))
        able = np.flatnonzero(here.fits(shape).count)
        if able.size:
            node = np.array([data.draw(st.sampled_from(able.tolist()))])
            tasks = here.take(shape, node, np.array([1]))
            movers.append(Mover(gang(shape, 1), (tasks,)))
    asked = gang(gpus(data.draw(st.integers(2, 4))), 1)
    expected = fewest_moves(here, asked, movers)
    held = [tasks for mover in movers for tasks in mover.placement]
    found = consolidate(here, asked, movers)
    if expected is None or expected <= 2:
        assert (found and len(found.moves)) == expected
    if found is None:
        assert miscounted(here, held) == []
        return
    assert len(found.moves) >= expected
    moved = dict(found.moves)
    now = [
        tasks for job, mover in enumerate(movers) for tasks in moved.get(job, mover.placement)
    ] + list(found.start)
    assert miscounted(here, now) == []
    assert overcommitted(here.nodes, now) == []
