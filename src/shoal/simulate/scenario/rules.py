"""How to decide, as a scenario says it: the fields of `Rules` by their names, durations without a unit
in the name.

    rules: {starving: 40m, beyondNominal: false, depth: 500}
"""

from __future__ import annotations

from typing import Any

import msgspec

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
        elif isinstance(field.default, str):
            said[field.name] = part.text()
        elif isinstance(field.default, bool):
            said[field.name] = part.flag()
        elif isinstance(field.default, int):
            said[field.name] = part.whole()
        else:
            said[field.name] = part.number()
    return Rules(**said)


def typed(name: str) -> str:
    """The key of a field of `Rules`."""
    first, *others = name.removesuffix(_UNIT).split("_")
    return first + "".join(word.capitalize() for word in others)
