import numpy as np

from shoal.schedule.placing.asks import Gang, Group
from shoal.schedule.placing.mend import mend
from shoal.schedule.placing.room import Nodes
from tests.schedule.placing.small import Room, gang, gpus, nodes, on, running, within


def broken(here, *failed):
    """The room without these nodes, and the mask of them."""
    mask = np.zeros(here.topology.nodes, dtype=np.bool_)
    mask[list(failed)] = True
    return Nodes(here.total, here.slots, here.topology, here.suits & ~mask), mask


def test_what_one_failed_node_cannot_have_another_gets():
    """scheduling-T4: nodes 0 and 1 fail; for the 4 tasks of the first there is no room, for the 2 of the
    second there is."""
    there = nodes(4, 2, 3, 4)
    job = gang(gpus(1), 10)
    tasks = running(gpus(1), *[(0, s) for s in range(4)], (1, 0), (1, 1), *[(3, s) for s in range(4)])
    after, failed = broken(there, 0, 1)
    here = Room(after)
    here.occupy(tasks)
    mended = mend(here, job, (tasks,), failed)
    assert mended.lost == {0: (4,)}
    assert on(mended.placement) == [[2, 2, 3, 3, 3, 3]]


def test_nothing_drifts_where_nothing_failed():
    """scheduling-T4: a node that was not ready for a while has lost nothing."""
    there = nodes(4, 4)
    tasks = running(gpus(1), (1, 3), (0, 2))
    here = Room(there)
    here.occupy(tasks)
    mended = mend(here, gang(gpus(1), 2), (tasks,), np.zeros(2, dtype=np.bool_))
    assert mended.lost == {}
    assert mended.placement[0].node.tolist() == [1, 0]
    assert mended.placement[0].slots.tolist() == [[3], [2]]


def test_what_comes_back_stays_in_the_rack_of_the_others():
    there = nodes(4, 4, 4, 8, racks=[0, 0, 1, 1])
    tasks = running(gpus(2), (0, 0, 1), (1, 0, 1), (1, 2, 3))
    after, failed = broken(there, 0)
    here = Room(after)
    here.occupy(tasks)
    mended = mend(here, gang(gpus(2), 3, reach=within(0)), (tasks,), failed)
    assert mended.lost == {0: (1,)}
    assert on(mended.placement) == [[1, 1]]
    anywhere = mend(here, gang(gpus(2), 3), (tasks,), failed)
    assert anywhere.lost == {}
    assert on(anywhere.placement) == [[1, 1, 2]]


def test_a_nodes_groups_come_back_together_or_not_at_all():
    there = nodes(2, 2, 1)
    workers, server = running(gpus(1), (0, 0)), running(gpus(1, cpu=1), (0, 1))
    job = Gang((Group(gpus(1), 1, 1), Group(gpus(1, cpu=1), 1, 1)))
    after, failed = broken(there, 0)
    here = Room(after)
    here.occupy(running(gpus(1), (1, 0), (1, 1)))
    mended = mend(here, job, (workers, server), failed)
    assert mended.lost == {0: (1, 1)}
    assert here.slots.tolist() == [[1000, 1000], [0, 0], [1000, -1]]
    assert on(mend(Room(after), job, (workers, server), failed).placement) == [[2], [1]]
