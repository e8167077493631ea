"""What a donor's training does for joiners: the state of a step boundary, copied beside the next step.

A joiner is served at the first boundary at which memory for the copy is there; what comes after it, the
gradients of each step, is packed into memory that is used again and again.

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
from typing import TYPE_CHECKING, Any

import torch

from shoal.elastic import state, threads
from shoal.elastic.blocks import Blocks
from shoal.elastic.errors import ElasticError
from shoal.elastic.state import Packed
from shoal.elastic.view import Cursor

if TYPE_CHECKING:
    from shoal.elastic.joining.donor import Donor
    from shoal.elastic.training import Training
    from shoal.elastic.wrapping import Objects

__all__ = ["Copying", "Giving"]

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


class Giving:
    """Of one process; `serve`, `settle` and `cancel` belong to the thread that trains."""

    def __init__(self, training: Training, donor: Donor) -> None:
        self._training = training
        self._donor = donor
        self._blocks: Blocks | None = None
        self._copying: Copying | None = None
        self._moment = (0, Cursor())
        self._at_once = False

    def serve(self) -> None:
        """At a step boundary: begin to copy the state, if a joiner waits for it."""
        training = self._training
        if not self._donor.followed and not self._donor.wanted:
            self._forget_memory()
        if self._copying is not None:
            self.cancel()  # its step was counted without an optimizer: a scaler has left it out
        if not self._donor.wanted:
            return
        tree, blocks = training.whole(), self._memory()
        if not blocks.ready(state.plan(tree).size):
            return
        self._moment = training.applied, training.cursor
        steady = [] if self._at_once else _steady(training.objects)
        self._copying = Copying(tree, steady, blocks, training.parameters_digest)
        if self._at_once:
            self.settle()

    def settle(self) -> None:
        """Parameters may change after this; joiners that wait are given the copy."""
        copying, self._copying = self._copying, None
        if copying is None:
            return
        found = copying.finish()
        # a script that changes parameters between its steps is given no time for it
        self._at_once = found is None
        if found is not None:
            packed, digest = found
            self._donor.snapshot(packed, *self._moment, digest)

    def applying(self, number: int) -> None:
        """An optimizer is about to step: followers get its gradients."""
        self.settle()
        training = self._training
        if self._donor.followed and not training.is_local:
            groups = training.objects.optimizers[number].param_groups
            gradients = [p.grad for group in groups for p in group["params"]]
            options = training.objects.options(number)
            self._donor.update(number, options, self._pack(gradients))

    def stepped(self) -> None:
        """The loop body of a step is over, with what a script does after the step: followers get what
        else there is. With local steps no joiner follows."""
        training = self._training
        if not self._donor.followed or training.is_local:
            return
        objects = training.objects
        rest = {
            "buffers": objects.buffers(),
            "others": objects.capture_others(),
            "options": [objects.options(number) for number in range(len(objects.optimizers))],
        }
        self._donor.applied(training.applied, training.cursor, self._pack(rest))

    def cancel(self) -> None:
        """The state is to be replaced."""
        copying, self._copying = self._copying, None
        if copying is not None:
            copying.cancel()

    def _pack(self, tree: Any) -> Packed:
        return state.pack(tree, self._memory())

    def _forget_memory(self) -> None:
        blocks, self._blocks = self._blocks, None
        if blocks is not None:
            # giving 120 MB back to the kernel takes 8 ms
            threads.start(blocks.clear, "shoal-blocks")

    def _memory(self) -> Blocks:
        if self._blocks is None:
            self._blocks = Blocks(self._training.reducer.layout.device)
        return self._blocks


def _steady(objects: Objects) -> list[torch.Tensor]:
    """All that changes only when an optimizer steps: parameters, and what optimizers keep of them."""
    parameters = [each for model in objects.models for each in model.parameters()]
    kept = [value for of in objects.optimizers for each in of.state.values() for value in each.values()]
    return [*parameters, *(value for value in kept if isinstance(value, torch.Tensor))]
