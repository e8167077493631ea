"""What of a status differs, as `Store.patch_status` wants to be told."""

from __future__ import annotations

from typing import Any

from shoal.objects import codec
from shoal.objects.meta import Part

__all__ = ["changed_fields"]


def changed_fields(old: Part, new: Part) -> dict[str, Any]:
    """Wire name to value of the fields in which `new` differs; None where it has the default again.
    The store's own counters are left out."""
    before, after = codec.builtins(old), codec.builtins(new)
    before.pop("writers", None)
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    return changed | {name: None for name in before if name not in after}
