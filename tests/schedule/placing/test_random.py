"""Rooms in which everything happens at random, against the slow model."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shoal.schedule.placing.asks import Domain, Gang, Group, Reach, Shape, Tasks
from shoal.schedule.placing.bulk import place_many
from shoal.schedule.placing.foresee import biggest, would_fit
from shoal.schedule.placing.grow import grow
from shoal.schedule.placing.place import has_room, place
from shoal.schedule.placing.prospect import Prospect
from shoal.schedule.placing.room import Nodes, Room
from shoal.schedule.placing.topology import Topology
from tests.schedule.placing.model import Model, least_nodes
from tests.schedule.placing.torn import miscounted, overcommitted, torn

_SHAPES = [
    Shape((1, 0)),
    Shape((2, 3), suits=1),
    Shape((0, 1), 1),
    Shape((1, 1), 2),
    Shape((1, 0), 3, suits=1),
    Shape((0, 0), 4),
    Shape((0, 1), share=500),
    Shape((0, 0), share=300),
    Shape((1, 1), share=700, suits=1),
]


@st.composite
def rooms(draw):
    """Up to 7 nodes of unlike sizes in racks that lie in blocks; some in no rack."""
    n = draw(st.integers(1, 7))
    widths = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    slots = np.full((n, 4), -1)
    for node, width in enumerate(widths):
        slots[node, :width] = 1000
    racks = np.array(draw(st.lists(st.integers(-1, 3), min_size=n, max_size=n)))
    blocks = np.where(racks >= 0, racks // 2, -1)
    total = np.array(draw(st.lists(st.tuples(*[st.integers(0, 9)] * 2), min_size=n, max_size=n)))
    suits = np.ones((2, n), dtype=np.bool_)
    suits[1] = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    return Room(Nodes(total, slots, Topology(np.stack((blocks, racks))), suits))


shapes = st.sampled_from(_SHAPES)
levels = st.none() | st.integers(0, 2)
reaches = st.builds(Reach, required=levels, preferred=levels)


@st.composite
def spans(draw, widest=3):
    """The least and the most of something."""
    least = draw(st.integers(0, widest))
    return least, least + draw(st.integers(0, widest))


@st.composite
def groups(draw):
    return Group(draw(shapes), *draw(spans(4)), draw(reaches))


def ways(name):
    return st.fixed_dictionaries({name: levels})


@st.composite
def gangs(draw):
    near = draw(st.none() | st.builds(Domain, st.just(2), st.just(0)))
    return Gang(
        tuple(draw(st.lists(groups(), min_size=1, max_size=3))),
        reach=draw(reaches),
        near=near,
        **({} if near else draw(st.sampled_from(["spread", "balanced"]).flatmap(ways))),
    )


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(rooms(), gangs())
def test_there_is_room_where_a_gang_would_be_placed(room, gang):
    told = has_room(room, gang)
    assert room.mark() == 0
    assert told is (place(room, gang) is not None)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_what_would_fit_once_others_have_gone_is_counted_as_it_is_placed(data):
    """Of a gang of one group; some go, and some of those are there again."""
    room, gang = data.draw(rooms()), Gang((data.draw(groups()),), reach=data.draw(reaches))
    assume(Prospect.says_all(gang))
    held = []
    for shape in data.draw(st.lists(shapes, max_size=6)):
        held += place(room, Gang((Group(shape, 0, 5),))) or ()
    prospect, gone = Prospect(room, gang), set()
    for at in data.draw(st.lists(st.integers(0, max(len(held) - 1, 0)), max_size=8)) if held else ():
        prospect.change((held[at],), -1 if at in gone else 1)
        gone ^= {at}
        assert prospect.fits() is (would_fit(room, gang, [held[each] for each in gone]) is not None)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_whatever_happens_the_books_are_right(data):
    room = data.draw(rooms())
    held = []
    marks = []
    for _ in range(data.draw(st.integers(1, 12))):
        step = data.draw(
            st.sampled_from(["place", "place", "many", "give", "mark", "roll", "copy", "look"])
        )
        if step == "place":
            gang = data.draw(gangs())
            placement = place(room, gang)
            if placement is not None:
                assert torn(room.nodes, gang, placement) == []
                held += [tasks for tasks in placement if len(tasks)]
        elif step == "many":
            tasks = place_many(room, data.draw(shapes), data.draw(st.integers(0, 9)))
            held += [tasks] if len(tasks) else []
        elif step == "give" and held:
            room.give_back(held.pop(data.draw(st.integers(0, len(held) - 1))))
        elif step == "mark":
            marks.append((room.mark(), list(held)))
        elif step == "roll" and marks:
            mark, held = marks.pop()
            room.rollback(mark)
        elif step == "copy":
            other, room = room, room.copy()
            place_many(other, data.draw(shapes), 5)
            marks = []
        elif step == "look":
            would_fit(room, data.draw(gangs()), held[:2])
        assert overcommitted(room.nodes, held) == []
        assert miscounted(room, held) == []
        model = Model(room.nodes)
        for tasks in held:
            model.put(tasks)
        for shape in data.draw(st.lists(shapes, max_size=3)):
            table, counts = room.fits(shape), model.counts(shape)
            if shape.slots or max(shape.ask):
                assert table.count.tolist() == counts
                for level in range(3):
                    for index in range(room.topology.sizes[level]):
                        inside = room.topology.domain[level] == index
                        assert table.capacity(Domain(level, index)) == sum(np.array(counts)[inside])


@st.composite
def taken(draw):
    """A room of which some is taken, and a model of what is left."""
    room = draw(rooms())
    for shape, count in draw(st.lists(st.tuples(shapes, st.integers(1, 6)), max_size=4)):
        place_many(room, shape, count)
    model = Model(room.nodes)
    model.free, model.slots = room.free.tolist(), room.slots.tolist()
    return room, model


@st.composite
def several(draw, most=8):
    """So many tasks of one shape."""
    return draw(shapes), draw(st.integers(1, most))


def domains_of(room, level):
    """Of each node at this level; one for all where there is none."""
    return [0] * room.topology.nodes if level is None else room.topology.domain[level].tolist()


def as_many(gang, placement):
    """The gang with just those tasks that were placed."""
    groups = zip(gang.groups, placement, strict=True)
    sized = (Group(group.shape, len(tasks), len(tasks), group.reach) for group, tasks in groups)
    return Gang(tuple(sized), reach=gang.reach)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(taken(), several(6), st.integers(0, 6), levels, levels)
def test_one_group_is_placed_if_and_only_if_it_fits(world, asked, more, level, spread):
    (room, model), (shape, least) = world, asked
    most = model.best_within(shape, domains_of(room, level))
    gang = Gang((Group(shape, least, least + more),), reach=Reach(required=level), spread=spread)
    fits = min(most, least + more) if most >= least else 0
    assert biggest(room, gang) == (fits,)
    placement = place(room, gang)
    assert (placement is not None) == (most >= least)
    if placement is not None:
        assert len(placement[0]) == min(most, least + more)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(taken(), several())
def test_a_group_is_on_as_few_nodes_as_can_be(world, asked):
    (room, model), (shape, count) = world, asked
    counts = model.counts(shape)
    placement = place(room, Gang((Group(shape, count, count),)))
    if placement is not None:
        assert len(set(placement[0].node.tolist())) == least_nodes(counts, count)


@settings(max_examples=25, deadline=None)
@given(taken(), several())
def test_a_preferred_domain_is_missed_only_where_none_would_do(world, asked):
    (room, model), (shape, count) = world, asked
    counts, racks = model.counts(shape), room.topology.domain[1]
    placement = place(room, Gang((Group(shape, count, count),), reach=Reach(preferred=1)))
    if placement is not None:
        together = len(set(racks[placement[0].node].tolist()) - {-1}) == 1
        fits = [
            index
            for index in set(racks.tolist()) - {-1}
            if sum(np.array(counts)[racks == index]) >= count
        ]
        in_none = (racks[placement[0].node] == -1).any()
        assert (together and not in_none) == bool(fits)
        if fits:
            room_in = {index: sum(np.array(counts)[racks == index]) for index in fits}
            assert room_in[int(racks[placement[0].node[0]])] == min(room_in.values())


@settings(max_examples=25, deadline=None)
@given(taken(), several())
def test_spread_tasks_are_level(world, asked):
    (room, model), (shape, count) = world, asked
    counts = model.counts(shape)
    placement = place(room, Gang((Group(shape, count, count),), spread=2))
    if placement is not None:
        each = np.bincount(placement[0].node, minlength=len(counts))
        for node, mine in enumerate(each.tolist()):
            assert mine >= max(each) - 1 or mine == counts[node]


@settings(max_examples=25, deadline=None)
@given(taken(), several(20))
def test_many_at_once_are_as_many_as_one_by_one(world, asked):
    (room, model), (shape, count) = world, asked
    tasks = place_many(room.copy(), shape, count)
    single = Gang((Group(shape, 1, 1),))
    one_by_one = sum(place(room, single) is not None for _ in range(count))
    assert len(tasks) == one_by_one == min(count, sum(model.counts(shape)))


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(taken(), gangs())
def test_equal_rooms_place_equally_whatever_was_looked_at_before(world, gang):
    room, _ = world
    fresh = room.copy()
    other = Room(room.nodes)
    other.free[:], other.slots[:], other.idle[:] = room.free, room.slots, room.idle
    for shape in _SHAPES:
        fresh.fits(shape)
        would_fit(fresh, Gang((Group(shape, 1, 3),)))
    answers = [place(each, gang) for each in (room, fresh, other)]
    said = [a and [(t.node.tolist(), t.slots.tolist()) for t in a] for a in answers]
    assert said[0] == said[1] == said[2]


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(taken(), shapes, st.lists(spans(), min_size=2, max_size=3), reaches)
def test_groups_of_one_shape_fit_as_if_they_were_one(world, shape, asked, reach):
    room, model = world
    best = model.best_within(shape, domains_of(room, reach.required))
    sizes = biggest(room, Gang(tuple(Group(shape, *span) for span in asked), reach=reach))
    least, most = (sum(each) for each in zip(*asked, strict=True))
    assert sum(sizes) == (min(best, most) if least <= best else 0)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(rooms(), gangs(), st.data())
def test_what_has_grown_is_still_where_it_has_to_be(room, gang, data):
    there = place(room, gang)
    if there is None or not any(map(len, there)):
        return
    least = [data.draw(st.integers(0, 1)) for _ in there]
    most = [low + data.draw(st.integers(0, 3)) for low in least]
    more = grow(room, gang, there, least, most)
    if more is None:
        assert miscounted(room, there) == []
        return
    assert all(low <= len(new) <= high for low, new, high in zip(least, more, most, strict=True))
    joined = tuple(Tasks.joined(old.shape, [old, new]) for old, new in zip(there, more, strict=True))
    assert miscounted(room, joined) == []
    assert torn(room.nodes, as_many(gang, joined), joined) == []
