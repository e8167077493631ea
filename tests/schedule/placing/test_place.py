import pytest

from shoal.schedule.placing.asks import Domain, Gang, Group, Reach, Shape
from shoal.schedule.placing.foresee import biggest, would_fit
from shoal.schedule.placing.place import place
from tests.schedule.placing.small import (
    cores,
    gang,
    gpus,
    on,
    rather,
    room,
    running,
    share,
    within,
)
from tests.schedule.placing.torn import miscounted, torn


def test_a_gang_that_does_not_fit_holds_nothing():
    """scheduling-G1: one node of 2 GPUs, two tasks of 2."""
    here = room(2)
    assert place(here, gang(gpus(2), 2)) is None
    assert miscounted(here, []) == []


def test_a_gang_is_seen_to_fit_once_what_leaves_has_gone():
    """scheduling-G2: one node of 4 GPUs, one of them on its way out, two tasks of 2."""
    here = room(4)
    leaving = running(gpus(1), (0, 1))
    here.occupy(leaving)
    asked = gang(gpus(2), 2)
    assert place(here, asked) is None
    assert on(would_fit(here, asked, [leaving])) == [[0, 0]]
    assert miscounted(here, [leaving]) == []


def test_gangs_larger_than_half_never_hold_part_of_the_room():
    """scheduling-G5: two gangs of 3 on 4 GPUs with single tasks between them; both run in the end."""
    here = room(2, 2)
    first = place(here, gang(gpus(1), 3))
    assert first is not None
    single = place(here, gang(gpus(1), 1))
    assert single is not None
    assert place(here, gang(gpus(1), 3)) is None
    assert miscounted(here, [*first, *single]) == []
    here.give_back(first[0])
    second = place(here, gang(gpus(1), 3))
    assert second is not None
    assert miscounted(here, [*single, *second]) == []


def test_nine_of_ten_are_none():
    """scheduling-G7: a gang of 10 of which 9 fit holds nothing after the attempt."""
    here = room(8, 1)
    assert place(here, gang(gpus(1), 10)) is None
    assert miscounted(here, []) == []
    assert here.fits(gpus(1)).total == 9


def test_of_two_groups_of_two_one_runs_whole():
    """scheduling-G8: {A, B} and {C, D} with room for two tasks: gangs are tried whole, in any order."""
    here = room(1, 1)
    pair = Gang((Group(gpus(1), 1, 1), Group(gpus(1, cpu=1), 1, 1)))
    first = place(here, pair)
    assert on(first) is not None
    assert torn(here.nodes, pair, first) == []
    assert place(here, pair) is None
    assert miscounted(here, first) == []


def test_as_many_as_fit_up_to_the_maximum():
    here = room(2, 3, 1)
    assert len(place(here, gang(gpus(1), 2, 5))[0]) == 5
    assert place(here, gang(gpus(1), 2, 5)) is None
    assert len(place(here, gang(gpus(1), 1, 5))[0]) == 1


def test_the_tightest_node_that_holds_all():
    assert on(place(room(8, 4, 4, 2), gang(gpus(1), 3))) == [[1, 1, 1]]


def test_as_few_nodes_as_can_be_and_the_rest_where_it_is_tightest():
    assert on(place(room(2, 4, 1, 4, 3), gang(gpus(1), 10))) == [[0, 0, 1, 1, 1, 1, 3, 3, 3, 3]]


def test_work_without_gpus_goes_where_no_gpu_is_idle():
    here = room(8, 0, 4)
    assert on(place(here, gang(cores(8), 1))) == [[1]]
    assert on(place(here, gang(cores(60), 1))) == [[2]]


def test_jobs_of_two_and_twice_four_all_fit():
    """scheduling-F4: nodes of 4, 4 and 2; jobs of 2, 4 and 4, in any order."""
    for sizes in ((2, 4, 4), (4, 2, 4), (4, 4, 2)):
        here = room(4, 4, 2)
        assert all(place(here, gang(gpus(size), 1)) for size in sizes)


def test_only_nodes_that_suit():
    here = room(4, 4, suits=[[True, True], [False, True]])
    assert on(place(here, gang(gpus(1, suits=1), 4))) == [[1, 1, 1, 1]]
    assert place(here, gang(gpus(1, suits=1), 1)) is None


class TestRacks:
    """Nodes of 4 GPUs, two in each rack."""

    def rooms(self, *used):
        here = room(4, 4, 4, 4, 4, 4, racks=[0, 0, 1, 1, 2, 2], blocks=[0, 0, 0, 0, 1, 1])
        for node, count in enumerate(used):
            for slot in range(count):
                here.occupy(running(gpus(1), (node, slot)))
        return here

    def test_all_in_the_one_rack_that_holds_them(self):
        """scheduling-T1: required, and one rack would do."""
        assert on(place(self.rooms(1, 0, 1, 1, 0, 1), gang(gpus(1), 7, reach=within(1)))) == [
            [0, 0, 0, 1, 1, 1, 1]
        ]

    def test_no_rack_holds_them(self):
        """scheduling-T1: required, and none would do: nothing is held."""
        here = self.rooms(1, 1, 1, 1, 1, 1)
        assert place(here, gang(gpus(1), 7, reach=within(1))) is None
        assert here.fits(gpus(1)).total == 18

    def test_a_rack_that_is_only_preferred_may_be_missed(self):
        """scheduling-T1: preferred; it runs in as few racks of one block as can be."""
        here = self.rooms(1, 1, 2, 2, 3, 3)
        placed = place(here, gang(gpus(1), 8, reach=rather(1)))
        assert on(placed) == [[0, 0, 0, 1, 1, 1, 2, 2]]

    def test_the_most_occupied_rack_that_fits_comes_first(self):
        """scheduling-T1: prefer the packed domain."""
        for reach in (within(1), rather(1)):
            assert on(place(self.rooms(0, 0, 1, 0, 3, 0), gang(gpus(1), 3, reach=reach))) == [[5, 5, 5]]
            assert on(place(self.rooms(0, 0, 1, 0, 3, 3), gang(gpus(1), 3, reach=reach))) == [[2, 2, 2]]

    def test_a_hard_limit_of_levels_holds(self):
        """scheduling-T2: not across blocks, though 20 would fit."""
        assert place(self.rooms(), gang(gpus(1), 17, reach=within(0))) is None
        assert on(place(self.rooms(), gang(gpus(4), 4, reach=within(0)))) == [[0, 1, 2, 3]]

    def test_a_soft_limit_of_levels_gives(self):
        """scheduling-T2: across blocks if it must be."""
        assert len(place(self.rooms(), gang(gpus(1), 17, reach=rather(0)))[0]) == 17

    def test_from_the_preferred_level_up_to_the_required_one(self):
        reach = Reach(required=0, preferred=1)
        assert on(place(self.rooms(), gang(gpus(4), 2, reach=reach))) == [[0, 1]]
        assert on(place(self.rooms(), gang(gpus(4), 3, reach=reach))) == [[0, 1, 2]]
        assert place(self.rooms(), gang(gpus(4), 5, reach=reach)) is None

    def test_a_node_is_a_level_too(self):
        assert place(self.rooms(), gang(gpus(1), 5, reach=within(2))) is None
        assert on(place(self.rooms(1, 1), gang(gpus(1), 4, reach=within(2)))) == [[2, 2, 2, 2]]

    def test_as_many_as_one_rack_holds(self):
        assert len(place(self.rooms(2, 2, 1, 2, 3, 3), gang(gpus(1), 2, 9, reach=within(1)))[0]) == 5

    def test_workers_and_their_server_in_one_rack(self):
        pair = Gang((Group(gpus(4), 2, 2), Group(gpus(1), 1, 1)), reach=within(1))
        assert place(self.rooms(), pair) is None
        smaller = Gang((Group(gpus(4), 1, 2), Group(gpus(1), 1, 1)), reach=within(1))
        placed = place(self.rooms(), smaller)
        assert torn(self.rooms().nodes, smaller, placed) == []
        assert [len(tasks) for tasks in placed] == [1, 1]

    def test_each_group_in_a_rack_of_its_own(self):
        two = Gang((Group(gpus(4), 2, 2, within(1)), Group(gpus(4), 2, 2, within(1))), reach=within(0))
        assert on(place(self.rooms(), two)) == [[0, 1], [2, 3]]

    def test_a_group_without_a_minimum_gets_what_one_rack_has_left(self):
        here = self.rooms(0, 0, 0, 0, 4, 1)
        two = Gang((Group(gpus(4), 2, 9), Group(gpus(1), 0, 9, within(1))))
        assert biggest(self.rooms(0, 0, 0, 0, 4, 1), two) == (4, 3)
        assert on(place(here, two)) == [[0, 1, 2, 3], [5, 5, 5]]

    def test_near_what_is_there_already_and_then_outwards(self):
        near = Domain(1, 1)
        assert on(place(self.rooms(), gang(gpus(4), 2, near=near))) == [[2, 3]]
        assert on(place(self.rooms(), gang(gpus(4), 4, near=near))) == [[0, 1, 2, 3]]
        assert on(place(self.rooms(), gang(gpus(4), 5, near=near))) == [[0, 1, 2, 3, 4]]

    def test_inside_is_nowhere_else(self):
        inside = Domain(1, 2)
        assert on(place(self.rooms(), gang(gpus(4), 2, inside=inside))) == [[4, 5]]
        assert place(self.rooms(), gang(gpus(4), 3, inside=inside)) is None

    def test_spread_over_nodes_and_over_racks(self):
        assert on(place(self.rooms(), gang(gpus(1), 7, spread=2))) == [[0, 0, 1, 2, 3, 4, 5]]
        assert on(place(self.rooms(), gang(gpus(1), 4, spread=1))) == [[0, 0, 2, 4]]
        assert on(place(self.rooms(3, 3), gang(gpus(1), 4, spread=0))) == [[2, 2, 4, 4]]

    def test_evenly_over_as_few_racks_as_hold_them(self):
        assert on(place(self.rooms(), gang(gpus(1), 10, balanced=1))) == [[0] * 4 + [1] + [2] * 4 + [3]]
        assert on(place(self.rooms(), gang(gpus(1), 6, balanced=1))) == [[0, 0, 0, 0, 1, 1]]
        assert on(place(self.rooms(3), gang(gpus(2), 3, balanced=2))) == [[1, 1, 2]]

    def test_racks_in_which_groups_do_not_fit_together_are_passed_over(self):
        here = self.rooms(1, 1, 1, 1, 0, 0)
        pair = Gang((Group(gpus(3), 2, 2), Group(gpus(1, cpu=1), 2, 2)), reach=within(1))
        assert on(place(here, pair)) == [[4, 5], [4, 5]]
        assert place(here, pair) is None

    def test_a_wider_level_is_looked_at_as_it_is_after_narrower_ones_failed(self):
        here = room(4, 4, 1, 1, racks=[0, 0, 1, 1], blocks=[0, 0, 0, 0])
        pair = Gang((Group(gpus(4), 2, 2), Group(gpus(1, cpu=1), 2, 2)), reach=Reach(0, 1))
        assert on(place(here, pair)) == [[0, 1], [2, 3]]


def test_a_node_in_no_rack_is_used_where_racks_are_only_preferred():
    here = room(2, 2, 4, racks=[0, 1, -1])
    assert place(here, gang(gpus(1), 3, reach=within(0))) is None
    assert len(place(here, gang(gpus(1), 8, reach=rather(0)))[0]) == 8


def test_groups_share_what_is_left_of_a_node():
    here = room(4, 4, cpu=8)
    pair = Gang((Group(cores(8), 1, 1), Group(gpus(4, cpu=1), 1, 1)))
    assert on(place(here, pair)) == [[0], [1]]
    assert place(room(4, cpu=8), pair) is None


def test_groups_are_tried_the_other_way_round():
    """The scarcest would take the only node that the other can have."""
    here = room(3, 4, cpu=[4, 6], suits=[[True, True], [True, False]])
    pair = Gang((Group(cores(4), 1, 1), Group(gpus(1, cpu=1, suits=1), 1, 1)))
    assert on(place(here, pair)) == [[1], [0]]


def test_groups_grow_as_far_as_there_is_room_after_all_have_their_minimum():
    here = room(4, 4)
    grows = Gang((Group(gpus(1), 1, 8), Group(gpus(2), 2, 2)))
    assert [len(tasks) for tasks in place(here, grows)] == [4, 2]
    assert biggest(room(4, 2), grows) == (2, 2)
    assert biggest(room(3), grows) == (0, 0)


def test_a_gang_has_a_minimum_in_all():
    grows = Gang((Group(gpus(1), 1, 8), Group(gpus(2), 1, 2)), minimum=5)
    assert biggest(room(4, 4), grows) == (6, 1)
    assert place(room(4), grows) is None


def test_biggest_is_exact_for_one_group():
    assert biggest(room(8, 3, 5), gang(gpus(2), 1, 100)) == (7,)
    assert biggest(room(8, 3, 5), gang(gpus(2), 8, 100)) == (0,)
    assert biggest(room(8, 3), gang(share(300), 1, 100)) == (33,)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (gang(gpus(1), 1, reach=within(3)), "no level 3"),
        (gang(gpus(1), 1, inside=Domain(0, 7)), "no domain 7 at level 0"),
        (gang(gpus(1, suits=4), 1), "mask 4"),
        (gang(Shape((1, 1)), 1), "2 resources"),
        (Gang(()), "at least one group"),
    ],
)
def test_what_there_is_not_is_said(asked, says):
    with pytest.raises(ValueError, match=says):
        place(room(4, racks=[0]), asked)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Shape((-1,)),
        lambda: Shape((1,), gpus=1, share=500),
        lambda: Shape((1,), share=1000),
        lambda: Group(gpus(1), 2, 1),
        lambda: Gang((Group(gpus(1), 1, 2),), minimum=3),
        lambda: Reach(required=-1),
        lambda: gang(gpus(1), 1, spread=0, near=Domain(0, 0)),
    ],
)
def test_what_makes_no_sense_cannot_be_asked(wrong):
    with pytest.raises(ValueError, match=r"a (task|group|gang|level)"):
        wrong()
