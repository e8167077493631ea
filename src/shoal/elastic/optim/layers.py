"""What layer-wise optimizers need of many tensors at once: exact copies, norms, and trust ratios.

Parameters in bf16 or fp16 are stepped on an fp32 copy kept in the optimizer's state: a small step added
to a bf16 number is mostly rounded away, and moments in fp16 overflow. Where the script has written to
the parameter since, the copy follows it, element by element.

All operations on lists are torch's multi-tensor ones; nothing waits for a device.
"""

# torch's multi-tensor operations have leading underscores and partial types, though many depend on them
# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

__all__ = ["MASTER", "Batch", "batches", "load_exactly", "norms", "ratios", "scaled"]

MASTER = "master"
"""The key of the fp32 copy in a parameter's state."""

_LOW = (torch.bfloat16, torch.float16)

State = dict[str, Any]  # torch's own: tensors by name


@dataclass(frozen=True)
class Batch:
    """Parameters of one type on one device, with what is computed on in their stead.

    `work[i]` is `parameters[i]` itself, or its fp32 copy; `gradients[i]` has the type of `work[i]`.
    """

    parameters: list[torch.Tensor]
    work: list[torch.Tensor]
    gradients: list[torch.Tensor]
    states: list[State]

    def moments(self, name: str) -> list[torch.Tensor]:
        """State tensors like `work`, zero when they are new."""
        for state, work in zip(self.states, self.work, strict=True):
            if name not in state:
                state[name] = torch.zeros_like(work, memory_format=torch.preserve_format)
        return [state[name] for state in self.states]

    def store(self) -> None:
        """Round the copies back into their parameters."""
        if self.work and self.work[0] is not self.parameters[0]:
            torch._foreach_copy_(self.parameters, self.work)


def batches(optimizer: torch.optim.Optimizer, parameters: Iterable[torch.Tensor]) -> Iterator[Batch]:
    """Parameters that have a gradient, by device and type.

    Raises:
        RuntimeError: a gradient is sparse, or a parameter complex.
    """
    found: dict[tuple[torch.device, torch.dtype], Batch] = {}
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None:
            continue
        name = type(optimizer).__name__
        if gradient.is_sparse:
            raise RuntimeError(f"{name} takes dense gradients: use sparse=False in the embedding")
        if parameter.is_complex():
            raise RuntimeError(f"{name} takes real parameters, not {parameter.dtype}")
        state = cast("State", optimizer.state[parameter])
        work = _work(parameter, state)
        batch = found.setdefault((parameter.device, parameter.dtype), Batch([], [], [], []))
        batch.parameters.append(parameter)
        batch.work.append(work)
        batch.gradients.append(gradient.to(work.dtype))
        batch.states.append(state)
    yield from found.values()


def norms(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Euclidean norms, shape (len(tensors),), in the tensors' own type and on their device."""
    return torch.stack(torch._foreach_norm(list(tensors), 2))


def ratios(numerator: torch.Tensor, denominator: torch.Tensor) -> torch.Tensor:
    """Trust ratios, elementwise; 1 where either is zero, so that a layer of zeros can leave zero."""
    sound = (numerator > 0) & (denominator > 0)
    return torch.where(sound, numerator / denominator, 1.0)


def scaled(tensors: Sequence[torch.Tensor], factors: torch.Tensor) -> list[torch.Tensor]:
    """New tensors: each times its own factor; `factors` has shape (len(tensors),)."""
    return list(torch._foreach_mul(list(tensors), list(factors.unbind())))


def load_exactly(
    optimizer: torch.optim.Optimizer, load: Callable[[dict[str, Any]], None], state_dict: dict[str, Any]
) -> None:
    """Load, then put fp32 state back as it was: torch rounds state to the parameter's type."""
    load(state_dict)
    numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    for number, parameter in zip(numbers, parameters, strict=True):
        saved = cast("State", state_dict["state"].get(number, {}))
        if parameter.dtype in _LOW:
            for name, value in saved.items():
                if isinstance(value, torch.Tensor) and value.dtype == torch.float32 and name != "step":
                    # a copy: load_state_dict() must not tie two optimizers together
                    optimizer.state[parameter][name] = value.to(parameter.device, copy=True)


@torch.no_grad()
def _work(parameter: torch.Tensor, state: State) -> torch.Tensor:
    if parameter.dtype not in _LOW:
        return parameter
    master = cast("torch.Tensor | None", state.get(MASTER))
    exact = parameter.detach().float()
    if master is None:
        state[MASTER] = exact
        return exact
    master.copy_(torch.where(master.to(parameter.dtype) == parameter, master, exact))
    return master
