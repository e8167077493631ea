"""The worked example of docs/design/placing.md."""

from shoal.schedule.placing.asks import Gang, Group
from shoal.schedule.placing.consolidate import Mover, consolidate
from shoal.schedule.placing.foresee import would_fit
from shoal.schedule.placing.place import place
from shoal.schedule.placing.shortfall import shortfall
from tests.schedule.placing.small import cores, gang, gpus, on, rather, room, share, within

RACK = 0
A = gang(gpus(8), 2, reach=rather(RACK))
B = gang(gpus(2), 3)
C = gang(share(500), 2)
D = Gang((Group(gpus(8, cpu=32), 2, 2), Group(cores(16), 1, 1)), reach=within(RACK))
E = gang(gpus(2), 1)


def test_five_jobs_on_five_nodes_in_two_racks():
    here = room(8, 8, 8, 8, 8, racks=[0, 0, 1, 1, 1], cpu=64)
    a, b, c, d = (place(here, each) for each in (A, B, C, D))
    assert on(a) == [[0, 1]]
    assert on(b) == [[2, 2, 2]]
    assert b[0].slots.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert on(c) == [[2, 2]]
    assert c[0].slots.tolist() == [[6], [6]]
    assert on(d) == [[3, 4], [3]]
    assert place(here, E) is None
    (why,) = shortfall(here, E)
    assert (why.wanted, why.anywhere, why.empty, why.nodes, why.alone[-1]) == (1, 0, 20, 5, 0)
    assert on(would_fit(here, E, a)) == [[0]]

    for tasks in a:
        here.give_back(tasks)
    six = [place(here, gang(gpus(6), 1)) for _ in range(2)]
    assert [on(each) for each in six] == [[[0]], [[1]]]
    movers = [Mover(B, b), Mover(C, c), *(Mover(gang(gpus(6), 1), each) for each in six)]
    assert consolidate(here, gang(gpus(8), 1), movers) is None
    found = consolidate(here, gang(gpus(4), 1), movers)
    assert found is not None
    assert on(found.start) == [[2]]
    assert [(who, on(where)) for who, where in found.moves] == [(0, [[0, 1, 2]])]
