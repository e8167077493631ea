"""The controller of Counter. The other of the two files of a toy kind."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.control.cache import ObjectCache
from shoal.control.context import ControllerContext
from shoal.control.controllers import Registration
from shoal.control.lease import Guard
from shoal.control.runner import Key, Source
from tests.kinds.counter import COUNTER, Counter


class CounterController:
    """Adds a step to each counter that has not reached its number."""

    name = "counter"

    def __init__(self, counters: ObjectCache[Counter], guard: Guard) -> None:
        self._counters = counters
        self._guard = guard

    def sources(self) -> Sequence[Source]:
        """Counters."""
        return (Source(self._counters, lambda old, new: [] if new is None else [new.key]),)

    def reconcile(self, key: Key, now: float) -> float | None:
        """Count one step, or end."""
        counter = self._counters.get(key)
        if counter is None or counter.status.phase != "Counting" or counter.metadata.deleted:
            return None
        value, until = counter.status.value, counter.spec.until
        fields: dict[str, object] = {}
        if counter.spec.cancelled or value >= until:
            fields = {"phase": "Cancelled" if counter.spec.cancelled else "Done", "finished": now}
        elif now < counter.metadata.created + counter.spec.every * (value // counter.spec.step + 1):
            return float(counter.spec.every)
        else:
            fields = {"value": min(until, value + counter.spec.step)}
        self._guard.check()
        self._counters.patch_status(counter, writer=self.name, fields=fields)
        return float(counter.spec.every)


def _make(context: ControllerContext) -> CounterController:
    return CounterController(context.cache(COUNTER), context.guard)


CONTROLLERS = (Registration(CounterController.name, _make),)
