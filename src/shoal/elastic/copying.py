"""A copy of the state as it is between two steps, made while the next one is computed.

Parameters and what optimizers keep change only when an optimizer steps: until then a thread copies them,
slice by slice, and the thread that is about to step first helps it with what is left. Everything else
(buffers, schedulers) is copied at once. From a GPU the copies run beside its computing, on a stream of
their own.
"""

# torch's own types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import torch

from shoal.elastic import state, threads
from shoal.elastic.blocks import Blocks
from shoal.elastic.errors import ElasticError
from shoal.elastic.state import Packed

__all__ = ["Copying"]

_SLICE_BYTES = 4 << 20
_SMALL_BYTES = 64 << 10
_FINISH_SECONDS = 60.0

_Pair = tuple[torch.Tensor, torch.Tensor]


class Copying:
    """One copy. Made, finished and cancelled by the thread that trains."""

    def __init__(
        self,
        tree: Any,
        steady: Iterable[torch.Tensor],
        blocks: Blocks,
        beside: Callable[[], int],
    ) -> None:
        """`steady`: those tensors that do not change until `finish`. `beside` is called in the copying
        thread, for a digest of them."""
        self._beside = beside
        self._digest = 0
        self._error: BaseException | None = None
        self._stopped = False
        self._steady = [(tensor, tensor._version) for tensor in steady]  # pyright: ignore
        plan = state.plan(tree)
        self._packed = Packed(plan.meta, blocks.take(plan.size))
        pairs = plan.pairs(self._packed.flat)
        later = {tensor.data_ptr() for tensor, _ in self._steady}
        waits = [each[0].data_ptr() in later and each[1].nbytes >= _SMALL_BYTES for each in pairs]
        self._slices = deque(
            part for pair, wait in zip(pairs, waits, strict=True) if wait for part in _sliced(*pair)
        )
        at_once = [pair for pair, wait in zip(pairs, waits, strict=True) if not wait]
        self._helping = threading.Lock()
        self._events = self._begin(at_once)
        self._thread = threads.start(self._run, "shoal-copy")

    def finish(self) -> tuple[Packed, int] | None:
        """Steady tensors may change after this: the copy, and what `beside` gave. None if one of them
        changed before.

        Raises:
            RuntimeError: copying failed.
        """
        with self._helping:
            self._copy()
        self._thread.join(_FINISH_SECONDS)
        if self._thread.is_alive():
            raise ElasticError(f"a copy of the state is not done after {_FINISH_SECONDS:g} s")
        if self._error is not None:
            raise RuntimeError(f"the state cannot be copied: {self._error}") from self._error
        # looked at on the thread that changes them: a version is counted up after the change
        if any(tensor._version != version for tensor, version in self._steady):  # pyright: ignore
            return None
        return self._packed, self._digest

    def cancel(self) -> None:
        """It is not wanted any more; nothing reads steady tensors after this."""
        self._stopped = True
        self.finish()

    @torch.no_grad()
    def _begin(self, at_once: list[_Pair]) -> list[torch.cuda.Event]:
        """Copy what may change, and send off all that is on a GPU: an event after the last of each."""
        for source, target in at_once:
            if not source.is_cuda:
                target.copy_(source)
        events: list[torch.cuda.Event] = []
        for device in {source.device for source, _ in (*at_once, *self._slices) if source.is_cuda}:
            here, beside = torch.cuda.current_stream(device), torch.cuda.Stream(device)
            beside.wait_stream(here)
            with torch.cuda.stream(beside):
                _copy_from(device, at_once)
                here.wait_event(beside.record_event())
                _copy_from(device, self._slices)
                copied = torch.cuda.Event()
                copied.record(beside)
                events.append(copied)
        self._slices = deque(pair for pair in self._slices if not pair[0].is_cuda)
        return events

    @torch.no_grad()
    def _copy(self) -> None:
        while not self._stopped:
            try:
                source, target = self._slices.popleft()
            except IndexError:
                return
            target.copy_(source)

    def _run(self) -> None:
        try:
            self._copy()  # a slice that `finish` has taken is its own to end
            for event in self._events:
                event.synchronize()
            if not self._stopped:
                self._digest = self._beside()
        except BaseException as error:  # noqa: BLE001 (raised by `finish`, on the thread that trains)
            self._error = error


def _copy_from(device: torch.device, pairs: Iterable[_Pair]) -> None:
    for source, target in pairs:
        if source.device == device:
            target.copy_(source, non_blocking=True)


def _sliced(source: torch.Tensor, target: torch.Tensor) -> list[_Pair]:
    if not source.is_contiguous():
        return [(source, target)]
    elements = max(1, _SLICE_BYTES // source.element_size())
    return list(zip(source.view(-1).split(elements), target.view(-1).split(elements), strict=True))
