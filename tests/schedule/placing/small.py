"""Small clusters to place on, and the words for what is asked of them."""

import numpy as np

from shoal.schedule.placing.asks import Gang, Group, Reach, Shape, Tasks
from shoal.schedule.placing.room import Nodes, Room
from shoal.schedule.placing.topology import Topology


def nodes(*gpus, racks=None, blocks=None, cpu=64, suits=None):
    """Nodes with so many GPUs each and one resource, cores; rows of the topology where given."""
    n, widest = len(gpus), max(gpus, default=0)
    slots = np.full((n, widest), -1)
    for node, count in enumerate(gpus):
        slots[node, :count] = 1000
    rows = [row for row in (blocks, racks) if row is not None]
    topology = Topology(np.array(rows, dtype=np.int64).reshape(len(rows), n))
    total = np.broadcast_to(np.array(cpu, dtype=np.int64).reshape(-1, 1), (n, 1))
    mask = np.ones((1, n), dtype=np.bool_) if suits is None else np.array(suits, dtype=np.bool_)
    return Nodes(total, slots, topology, mask)


def room(*gpus, **rest):
    return Room(nodes(*gpus, **rest))


def gpus(count, cpu=0, suits=0):
    return Shape((cpu,), count, suits=suits)


def share(thousandths, cpu=0):
    return Shape((cpu,), share=thousandths)


def cores(count, suits=0):
    return Shape((count,), suits=suits)


def gang(shape, least, most=None, **rest):
    """A gang of one group."""
    return Gang((Group(shape, least, least if most is None else most),), **rest)


def within(level):
    return Reach(required=level)


def rather(level):
    return Reach(preferred=level)


def on(placement):
    """The nodes of each group's tasks, ascending."""
    return None if placement is None else [sorted(tasks.node.tolist()) for tasks in placement]


def running(shape, *where):
    """Tasks on a node, or on a node and its GPUs."""
    node = [each if isinstance(each, int) else each[0] for each in where]
    slots = [() if isinstance(each, int) else each[1:] for each in where]
    return Tasks(
        shape, np.array(node, dtype=np.int64), np.array(slots, dtype=np.int64).reshape(len(where), -1)
    )
