from shoal.schedule.placing.asks import Domain, Shape
from shoal.schedule.placing.shortfall import Shortfall, Shortfalls, shortfall
from tests.schedule.placing.small import gang, gpus, room, running, share, within


def test_a_rack_is_missing():
    """scheduling-T1: it waits because no one rack has room, though two together have."""
    here = room(4, 4, racks=[0, 1], cpu=10)
    here.occupy(running(gpus(1), (0, 0)))
    found = shortfall(here, gang(gpus(1, cpu=2), 6, reach=within(0)))
    assert found == (Shortfall(wanted=6, reachable=4, anywhere=7, empty=8, nodes=2, alone=(10, 7)),)


def test_what_is_short_is_told_apart():
    here = room(8, 8, cpu=4, suits=[[True, True], [True, False]])
    (found,) = shortfall(here, gang(Shape((3,), 2, suits=1), 2))
    assert (found.anywhere, found.empty, found.nodes, found.alone) == (1, 1, 1, (1, 4))
    (found,) = shortfall(here, gang(share(300), 60))
    assert (found.anywhere, found.alone[-1]) == (48, 48)


def test_only_where_it_may_be():
    here = room(4, 4, 2, racks=[0, 0, 1])
    (found,) = shortfall(here, gang(gpus(1), 3, inside=Domain(0, 1)))
    assert (found.reachable, found.anywhere, found.empty, found.nodes) == (2, 2, 2, 1)


def test_what_is_so_of_a_shape_is_so_until_the_room_changes():
    here = room(4, 4, 2, racks=[0, 0, 1])
    known = Shortfalls(here)
    for count, level in ((3, None), (7, None), (3, 0)):
        asked = gang(gpus(1), count, reach=within(level))
        assert known.of(asked) == shortfall(here, asked)
    here.occupy(running(gpus(1), (0, 0)))
    assert known.of(gang(gpus(1), 3)) == shortfall(here, gang(gpus(1), 3))
    assert known.of(gang(gpus(1), 3))[0].anywhere == 9
