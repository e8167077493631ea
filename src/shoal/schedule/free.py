"""What is free on nodes, one write after the other: whether each may take what it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shoal.schedule.snapshot import Hold, NodeRow

__all__ = ["Free"]

_WHOLE = 1000


class Free:
    """Mutable. Where it is not known which devices somebody holds, none of the node is free."""

    def __init__(self, nodes: Sequence[NodeRow], holds: Iterable[Hold] = ()) -> None:
        self._amounts = {node.name: [node.cpu, node.memory] for node in nodes}
        self._devices = {node.name: dict.fromkeys(node.gpus, _WHOLE) for node in nodes}
        for hold in holds:
            self.occupy(hold)

    def occupy(self, hold: Hold) -> None:
        """Count what the hold takes, whether it is free or not."""
        self._count(hold, 1)

    def give_back(self, hold: Hold) -> None:
        """What the hold took is free again."""
        self._count(hold, -1)

    def take(self, holds: Iterable[Hold]) -> bool:
        """All of it; False, and nothing taken, where something is not free."""
        taken: list[Hold] = []
        for hold in holds:
            if not self._fits(hold):
                for each in taken:
                    self.give_back(each)
                return False
            self.occupy(hold)
            taken.append(hold)
        return True

    def _fits(self, hold: Hold) -> bool:
        amounts = self._amounts.get(hold.node)
        if amounts is None or hold.cpu > amounts[0] or hold.memory > amounts[1]:
            return False
        devices = self._devices[hold.node]
        share = hold.share or _WHOLE
        return all(devices.get(device, 0) >= share for device in hold.devices)

    def _count(self, hold: Hold, sign: int) -> None:
        amounts = self._amounts.get(hold.node)
        if amounts is None:
            return
        amounts[0] -= sign * hold.cpu
        amounts[1] -= sign * hold.memory
        devices = self._devices[hold.node]
        unknown = (hold.gpu or bool(hold.share)) > len(hold.devices)
        for device in devices if unknown else hold.devices:
            if device in devices:
                devices[device] -= sign * (hold.share or _WHOLE)
