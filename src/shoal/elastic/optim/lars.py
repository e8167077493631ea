"""LARS: SGD with momentum and a rate that follows each layer's ratio of weight to gradient.

You, Gitman, Ginsburg, "Large Batch Training of Convolutional Networks", 2017, arXiv 1708.03888,
algorithm 1.

Parameters in bf16 or fp16 are stepped on an fp32 copy kept in the optimizer's state: a small step added
to a bf16 number is mostly rounded away, and moments in fp16 overflow. Where the script has written to
the parameter since, the copy follows it, element by element. All operations on lists are torch's
multi-tensor ones; nothing waits for a device.
"""

# torch's multi-tensor operations have leading underscores and partial types, though many depend on them
# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false, reportUnknownMemberType=false

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.optim.optimizer import ParamsT

__all__ = [
    "LARS",
    "MASTER",
    "Batch",
    "LayerWise",
    "batches",
    "load_exactly",
    "norms",
    "ratios",
    "scaled",
]

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


class LayerWise(torch.optim.Optimizer):
    """An optimizer that steps many tensors of one type at once."""

    @abstractmethod
    def apply(self, batch: Batch, group: dict[str, Any]) -> None:
        """One step on these parameters, with the options of their group."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """One step on every parameter that has a gradient; gives what `closure` gave.

        Raises:
            RuntimeError: a gradient is sparse, or a parameter complex.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for batch in batches(self, group["params"]):
                self.apply(batch, group)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, without rounding fp32 state of low-precision parameters."""
        load_exactly(self, super().load_state_dict, state_dict)


class LARS(LayerWise):
    """With learning rate g, momentum m, decay b and trust coefficient t, for each layer's weights w:

        local = t * |w| / (|grad| + b * |w| + eps)
        v     = m * v + g * local * (grad + b * w)
        w     = w - v

    `local` is 1 where |w| or its divisor is zero, and in parameter groups with `adapt=False` (meant
    for biases and normalisation). Parameters in bf16 and fp16 are stepped on an fp32 copy.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | torch.Tensor,
        *,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 0.001,
        eps: float = 0.0,
    ) -> None:
        """Raises ValueError for values outside of their ranges."""
        if float(lr) < 0 or weight_decay < 0 or eps < 0:
            raise ValueError(f"lr {lr}, weight_decay {weight_decay} and eps {eps} must not be negative")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum {momentum} must be in [0, 1)")
        if trust_coefficient <= 0:
            raise ValueError(f"trust_coefficient {trust_coefficient} must be positive")
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "weight_decay": weight_decay,
                "trust_coefficient": trust_coefficient,
                "eps": eps,
                "adapt": True,
            },
        )

    def apply(self, batch: Batch, group: dict[str, Any]) -> None:
        """See `LayerWise.apply`."""
        decay: float = group["weight_decay"]
        update = batch.gradients
        trust = torch.ones(len(batch.work), dtype=batch.work[0].dtype, device=batch.work[0].device)
        if group["adapt"]:
            weight = norms(batch.work)
            divisor = norms(update) + decay * weight + group["eps"]
            trust = ratios(group["trust_coefficient"] * weight, divisor)
        if decay:
            update = torch._foreach_add(update, batch.work, alpha=decay)
        step = scaled(update, trust * group["lr"])
        if group["momentum"]:
            velocity = batch.moments("velocity")
            torch._foreach_mul_(velocity, group["momentum"])
            torch._foreach_add_(velocity, step)
            step = velocity
        torch._foreach_sub_(batch.work, step)
        batch.store()
