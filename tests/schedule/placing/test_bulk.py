"""Many tasks at once are where they would be one after the other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule.placing.asks import Shape
from shoal.schedule.placing.bulk import place_in_turn
from shoal.schedule.placing.place import place
from tests.schedule.placing.small import cores, gang, gpus, room, running, share


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(st.data())
def test_in_turn_means_where_each_would_be_by_itself(data):
    """Whatever is taken already, nodes, GPUs and their order are those of gangs of one."""
    sizes = data.draw(st.lists(st.integers(0, 8), min_size=1, max_size=6))
    cpu = data.draw(st.lists(st.integers(0, 20), min_size=len(sizes), max_size=len(sizes)))
    suits = [data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))]
    shape = data.draw(st.sampled_from([gpus(1), gpus(2, cpu=3), gpus(3), gpus(4), cores(1), cores(3)]))
    together, alone = room(*sizes, cpu=cpu, suits=suits), room(*sizes, cpu=cpu, suits=suits)
    for node, size in enumerate(sizes):
        for slot in data.draw(st.sets(st.integers(0, 7))) & set(range(size)):
            part = share(data.draw(st.sampled_from([300, 999])))
            for here in (together, alone):
                here.occupy(running(part, (node, slot)))
    count = data.draw(st.integers(0, 40))
    found = place_in_turn(together, shape, count)
    each = [at for at in (place(alone, gang(shape, 1)) for _ in range(count)) if at is not None]
    assert found.node.tolist() == [int(tasks.node[0]) for (tasks,) in each]
    assert found.slots.tolist() == [tasks.slots[0].tolist() for (tasks,) in each]
    assert (together.slots == alone.slots).all()
    assert (together.free == alone.free).all()
    assert (together.idle == alone.idle).all()
    assert np.array_equal(together.fits(shape).count, alone.fits(shape).count)


@pytest.mark.parametrize("shape", [share(500), Shape((0,))])
def test_what_does_not_fill_one_node_after_the_other_is_not_placed_in_turn(shape):
    """A share may go from a full GPU to an emptier node; who asks for nothing fills none."""
    with pytest.raises(ValueError, match="in turn"):
        place_in_turn(room(4, 4), shape, 3)
