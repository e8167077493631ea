"""What is free, the slow way: tasks are put one by one, on lists, and everything is tried."""

from itertools import combinations


class Model:
    def __init__(self, nodes):
        self.nodes = nodes
        self.free = nodes.total.tolist()
        self.slots = nodes.slots.tolist()

    def put(self, tasks, sign=1):
        shape = tasks.shape
        for node, slots in zip(tasks.node.tolist(), tasks.slots.tolist(), strict=True):
            for resource, ask in enumerate(shape.ask):
                self.free[node][resource] -= sign * ask
            for slot in slots:
                self.slots[node][slot] -= sign * (1000 if shape.gpus else shape.share)

    def fits(self, shape, node):
        """How many tasks fit on the node: one after the other, until none does."""
        if not self.nodes.suits[shape.suits, node]:
            return 0
        free, slots = list(self.free[node]), list(self.slots[node])
        count = 0
        while count < 100:
            if any(ask and ask > left for ask, left in zip(shape.ask, free, strict=True)):
                break
            if shape.gpus:
                idle = [slot for slot, left in enumerate(slots) if left == 1000]
                if len(idle) < shape.gpus:
                    break
                for slot in idle[: shape.gpus]:
                    slots[slot] = 0
            elif shape.share:
                able = [slot for slot, left in enumerate(slots) if left >= shape.share]
                if not able:
                    break
                slots[able[0]] -= shape.share
            free = [left - ask for ask, left in zip(shape.ask, free, strict=True)]
            count += 1
        return count

    def counts(self, shape):
        return [self.fits(shape, node) for node in range(len(self.free))]

    def best_within(self, shape, domains):
        """The most that fit into one domain; -1 is none of them."""
        counts = self.counts(shape)
        return max(
            (
                sum(c for c, d in zip(counts, domains, strict=True) if d == each)
                for each in set(domains) - {-1}
            ),
            default=0,
        )


def least_nodes(counts, count):
    """On how few nodes so many tasks fit."""
    if not count:
        return 0
    return next(
        size
        for size in range(1, len(counts) + 1)
        for chosen in combinations(counts, size)
        if sum(chosen) >= count
    )
