"""How to decide, as a scenario says it: the fields of `Rules` by their names, durations without a unit
in the name.

    rules: {starving: 40m, beyondNominal: false, depth: 500}
"""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.objects.nearest import did_you_mean
from shoal.schedule.cycle.peers.named import POLICIES
from shoal.schedule.cycle.rows import Rules
from shoal.simulate.scenario.spot import Spot

__all__ = ["read_rules", "typed"]

_UNIT = "_seconds"


def read_rules(spot: Spot | None) -> Rules:
    """What is not stated is as `Rules` has it. Raises `BadInput`."""
    if spot is None:
        return Rules()
    known = {typed(field.name): field for field in msgspec.structs.fields(Rules)}
    said: dict[str, Any] = {}  # Any: of as many types as fields have
    for key, part in spot.fields(known).parts.items():
        field = known[key]
        if field.name.endswith(_UNIT):
            said[field.name] = part.seconds()
        elif field.name == "policy":
            said[field.name] = _policy(part)
        elif isinstance(field.default, bool):
            said[field.name] = part.flag()
        elif isinstance(field.default, int):
            said[field.name] = part.whole()
        else:
            said[field.name] = part.number()
    return Rules(**said)


def _policy(spot: Spot) -> str:
    name = spot.text()
    if name not in POLICIES:
        near = did_you_mean(name, POLICIES) or f"; there are {', '.join(POLICIES)}"
        raise spot.wrong(f"there is no policy {name}{near}")
    return name


def typed(name: str) -> str:
    """The key of a field of `Rules`."""
    first, *others = name.removesuffix(_UNIT).split("_")
    return first + "".join(word.capitalize() for word in others)
