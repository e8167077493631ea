import numpy as np
import pytest

from shoal.schedule.placing.asks import Domain, Shape, Tasks
from shoal.schedule.placing.bulk import place_many
from shoal.schedule.placing.fits import Tables
from shoal.schedule.placing.foresee import would_fit
from shoal.schedule.placing.place import place
from shoal.schedule.placing.room import Nodes, Room
from shoal.schedule.placing.topology import Topology
from tests.schedule.placing.small import cores, gang, gpus, nodes, room, running, share, within
from tests.schedule.placing.torn import miscounted, overcommitted, torn


def test_what_was_not_taken_cannot_be_given_back():
    here = room(2, 2)
    tasks = here.take(gpus(1), np.array([1]), np.array([2]))
    here.give_back(tasks)
    for wrong in (tasks, running(share(1), (0, 0)), running(cores(1), 0)):
        with pytest.raises(ValueError, match="more would be given back on node"):
            here.give_back(wrong)
    assert miscounted(here, []) == []


@pytest.mark.parametrize(
    ("tasks", "says"),
    [
        (running(gpus(1), (2, 0)), "none of the 2 nodes"),
        (running(gpus(1), (1, 2)), "none of the 2 GPUs"),
        (running(gpus(2), (0, 0)), "do not match"),
        (running(Shape((1, 1)), 0), "2 resources in a room of 1"),
    ],
)
def test_tasks_are_where_there_is_something(tasks, says):
    with pytest.raises(ValueError, match=says):
        room(2, 1).occupy(tasks)


def test_what_runs_is_counted_whatever_there_is():
    here = room(2, cpu=4)
    tasks = running(gpus(1, cpu=3), (0, 0), (0, 0))
    here.occupy(tasks)
    assert here.free.tolist() == [[-2]]
    assert here.slots.tolist() == [[-1000, 1000]]
    assert here.fits(cores(1)).count.tolist() == [0]
    assert len(overcommitted(here.nodes, [tasks])) == 2
    assert here.fits(gpus(1)).total == 1
    here.give_back(tasks)
    assert miscounted(here, []) == []


def test_exactly_these_places_are_free_or_not():
    here = room(2, 2, cpu=4, suits=[[True, True], [True, False]])
    assert here.holds(running(gpus(1, cpu=2), (0, 0), (0, 1)))
    assert not here.holds(running(gpus(1, cpu=3), (0, 0), (0, 1)))
    assert not here.holds(running(gpus(1, suits=1), (1, 0)))
    here.occupy(running(share(400), (0, 1)))
    assert here.holds(running(share(300), (0, 1), (0, 1)))
    assert not here.holds(running(share(301), (0, 1), (0, 1)))
    assert not here.holds(running(gpus(1), (0, 1)))
    assert here.holds(Tasks.none(gpus(1)))


def test_a_settled_room_is_not_rolled_back():
    here = room(2)
    place(here, gang(gpus(1), 1))
    here.settle()
    place(here, gang(gpus(1), 1))
    here.rollback(0)
    assert here.idle.tolist() == [1]


def test_looking_ahead_leaves_no_trace_even_when_it_fails():
    here = room(2)
    with pytest.raises(ValueError, match="more would be given back"):
        would_fit(here, gang(gpus(1), 1), [running(gpus(1), (0, 0))])
    assert miscounted(here, []) == []


def test_counts_are_right_after_many_changes_and_many_shapes():
    here = room(*[4] * 40, racks=[node // 4 for node in range(40)])
    for turn in range(160):
        tasks = place_many(here, gpus(1 + turn % 4), 3, inside=Domain(0, turn % 10))
        if turn % 3:
            here.give_back(tasks)
        here.fits(Shape((turn % 150,), 1))
    for shape in (gpus(1), gpus(2), gpus(3), cores(5), Shape((7,), 1)):
        fresh = Tables().of(here, shape)
        assert here.fits(shape).count.tolist() == fresh.count.tolist()
        assert here.fits(shape).key.tolist() == fresh.key.tolist()
        assert [sums.tolist() for sums in here.fits(shape).within] == [
            sums.tolist() for sums in fresh.within
        ]
        assert here.fits(shape).total == fresh.total


def test_copies_go_their_own_ways():
    here = room(4, 4)
    here.fits(gpus(1))
    other = here.copy()
    place_many(other, gpus(1), 3)
    assert other.fits(gpus(1)).count.tolist() == [1, 4]
    assert here.fits(gpus(1)).count.tolist() == [4, 4]
    place_many(here, gpus(1), 8)
    assert here.fits(gpus(1)).count.tolist() == [0, 0]
    assert other.fits(gpus(1)).count.tolist() == [1, 4]
    other.rollback(0)
    assert other.fits(gpus(1)).count.tolist() == [4, 4]


def test_shapes_not_asked_for_in_a_long_time_are_counted_anew():
    here = room(*[4] * 40, cpu=400)
    rare = [Shape((cpu,), 2) for cpu in range(1, 121)]
    for shape in rare:
        here.fits(shape)
    place_many(here, gpus(1), 3)
    for turn in range(700):
        here.give_back(here.take(gpus(1), np.array([39]), np.array([1])))
        here.fits(gpus(1))
        if turn >= 650 or turn % 10 == 9:
            assert here.fits(rare.pop()).count.tolist() == [0] + [2] * 39


def test_a_shape_that_was_forgotten_is_counted_again():
    here = room(4, 2, cpu=1000)
    first = here.fits(gpus(2))
    place_many(here, gpus(1), 1)
    for cpu in range(1, 400):
        assert here.fits(cores(cpu)).count.tolist() == [1000 // cpu] * 2
    assert here.fits(gpus(2)) is not first
    assert here.fits(gpus(2)).count.tolist() == [2, 0]


def test_nodes_change_under_what_runs():
    there = nodes(4, 2, 2, racks=[0, 0, 1])
    here = Room(there)
    tasks = running(gpus(1), (0, 0), (1, 1))
    here.occupy(tasks)
    assert here.fits(gpus(1)).count.tolist() == [3, 1, 2]
    total, slots, suits = there.total.copy(), there.slots.copy(), np.vstack((there.suits, there.suits))
    total[2], slots[1, 1], slots[1, 2], suits[0, 0] = 7, -1, 1000, False
    now = Nodes(total, slots, there.topology, suits)
    here.replace(now, np.array([0, 1, 2]))
    assert here.fits(gpus(1)).count.tolist() == [0, 2, 2]
    assert here.fits(gpus(1, suits=1)).count.tolist() == [3, 2, 2]
    assert here.fits(gpus(1)).capacity(Domain(0, 0)) == 2
    assert here.fits(cores(1, suits=1)).count.tolist() == [64, 64, 7]
    assert miscounted(here, [tasks]) == []
    assert overcommitted(now, [tasks]) == ["node 1 has no GPU 1"]
    here.give_back(tasks)
    assert miscounted(here, []) == []
    with pytest.raises(ValueError, match="another room"):
        here.replace(nodes(4, 2, 2), np.array([0]))
    with pytest.raises(ValueError, match="no mask can go"):
        here.replace(Nodes(total, slots, there.topology, suits[:1]), np.array([0]))


def test_arrays_that_do_not_match_are_refused():
    topology = Topology(np.zeros((1, 2), dtype=np.int64))
    total, slots, suits = np.ones((2, 1), int), np.full((2, 4), 1000), np.ones((1, 2), bool)
    Room(Nodes(total, slots, topology, suits))
    with pytest.raises(ValueError, match="same 2 nodes"):
        Nodes(total[:1], slots, topology, suits)
    with pytest.raises(ValueError, match="1000 thousandths"):
        Nodes(total, slots + 1, topology, suits)
    with pytest.raises(ValueError, match="two dimensions"):
        Nodes(total[:, 0], slots, topology, suits)


def test_a_rack_lies_in_one_block():
    with pytest.raises(ValueError, match="domain 1 of level 1 lies in more than one of level 0"):
        Topology(np.array([[0, 0, 1], [0, 1, 1]]))
    with pytest.raises(ValueError, match="0 up, or -1"):
        Topology(np.array([[0, -2]]))


def test_domains_know_what_is_in_them():
    topology = Topology(np.array([[0, 0, 1, 1, -1], [1, 0, 2, 2, -1]]))
    assert topology.members(Domain(0, 0)).tolist() == [0, 1]
    assert topology.members(Domain(1, 2)).tolist() == [2, 3]
    assert topology.inside(1, Domain(0, 0)).tolist() == [0, 1]
    assert topology.inside(2, Domain(1, 2)).tolist() == [2, 3]
    assert topology.widened(Domain(2, 3), 0) == Domain(0, 1)
    assert topology.widened(Domain(2, 4), 1) is None
    assert topology.holds(Domain(0, 0), Domain(1, 1))
    assert not topology.holds(Domain(1, 1), Domain(0, 0))


def test_a_torn_placement_is_told():
    there = nodes(4, 4, racks=[0, 1], suits=[[True, True], [True, False]])
    far = (running(gpus(1), (0, 0), (1, 0)),)
    assert torn(there, gang(gpus(1), 2), far) == []
    assert torn(there, gang(gpus(1), 2, reach=within(0)), far) != []
    assert torn(there, gang(gpus(1), 3), far) != []
    assert torn(there, gang(gpus(1), 2, inside=Domain(0, 0)), far) != []
    assert torn(there, gang(gpus(1, suits=1), 2), (running(gpus(1, suits=1), (0, 0), (1, 0)),)) != []
    assert torn(there, gang(gpus(2), 1), (running(gpus(2), (0, 1, 1)),)) != []
    assert torn(there, gang(gpus(2), 2), far) != []
    assert torn(there, gang(gpus(1), 2), ()) != []


def test_books_that_are_wrong_are_told():
    here = room(2, 2)
    here.free[0] -= 1
    here.slots[1, 0] = 0
    assert len(miscounted(here, [])) == 3
    assert "GPU 0 of node 1" in overcommitted(here.nodes, [running(gpus(1), (1, 0), (1, 0))])[0]
