"""The models, optimizers and stateful helpers of a script, wrapped without changing their types.

`optimizer.step()`, and `step`, `update` and `unscale_` of schedulers, scalers and averages, act only in
the pass of the loop that ends a step, and do nothing in the others: the script stays a plain loop. Uses
of them that would train wrongly in silence raise an error that says what to do.
"""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from torch import nn

from shoal.elastic.errors import ElasticError

__all__ = ["Objects"]

_FOLLOWING = ("step", "update", "unscale_", "update_parameters")


class Objects:
    """Models, optimizers and others, as `job.wrap` was given them, in that order on every rank.

    `handled`: the script has stepped an optimizer in this pass, or dropped the gradients on purpose.
    """

    def __init__(
        self,
        may_apply: Callable[[], bool],
        applying: Callable[[int], AbstractContextManager[None]],
        applied: Callable[[int], None],
    ) -> None:
        """`may_apply` gates every step; an optimizer's is within `applying`, and `applied` is called
        after it, each with its number."""
        self.models: list[nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.others: list[Any] = []
        self._may_apply = may_apply
        self._applying = applying
        self._applied = applied
        self._steps: list[Callable[[], Any]] = []
        self._stepped: set[int] = set()
        self._frozen: list[tuple[str, nn.Parameter]] = []
        self.handled = False

    def add(self, thing: Any) -> None:
        """Wrap one object.

        Raises:
            ElasticError: its state cannot be saved and loaded, it is not supported, or it is wrapped
                already.
        """
        if any(thing is each for each in (*self.models, *self.optimizers, *self.others)):
            raise ElasticError(f"job.wrap() was given the same {type(thing).__name__} twice")
        if isinstance(thing, nn.Module) and not hasattr(thing, "update_parameters"):
            self.models.append(thing)
        elif isinstance(thing, torch.optim.Optimizer):
            self._add_optimizer(thing)
        elif hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
            self.others.append(thing)
            self._gate(thing)
        else:
            raise ElasticError(
                f"job.wrap() cannot follow a {type(thing).__name__}: it has no state_dict() and "
                "load_state_dict()"
            )

    def begin_pass(self) -> None:
        """The loop body runs once more."""
        self._stepped.clear()
        self.handled = False

    def check_pass(self) -> None:
        """
        Raises:
            ElasticError: the pass that ended a step used its gradients for nothing.
        """
        if self.optimizers and not self.handled:
            raise ElasticError(
                "optimizer.step() was not called after backward(), so the gradients of this step would "
                "be lost: to accumulate over k passes use job.shards(..., accumulate=k); to skip a step "
                "call optimizer.zero_grad() after backward()"
            )

    def check_frozen(self) -> None:
        """
        Raises:
            ElasticError: a parameter was unfrozen after gradients had been assigned to buckets.
        """
        for name, parameter in self._frozen:
            if parameter.requires_grad:
                raise ElasticError(
                    f"the parameter {name} was unfrozen after the first job.shards(), so its gradients "
                    "would not be summed over the workers: let it require gradients from the start, in "
                    "a parameter group with a learning rate of 0 until it is to be trained"
                )

    def check_schedulers(self) -> None:
        """
        Raises:
            ElasticError: a scheduler of a wrapped optimizer was not wrapped.
        """
        if self._unwrapped():
            gc.collect()
        for scheduler in self._unwrapped():
            raise _not_wrapped(scheduler)

    def needs_pairs(self) -> bool:
        """Whether a batch of one sample cannot be normalised: a BatchNorm1d is being trained."""
        return any(each.training for each in self._modules() if isinstance(each, nn.BatchNorm1d))

    def parameters(self) -> list[nn.Parameter]:
        """Of all models, each once, as far as they want gradients; in a fixed order.

        Raises:
            ElasticError: an optimizer changes parameters that belong to no wrapped model.
        """
        found = {id(p): p for model in self.models for p in model.parameters() if p.requires_grad}
        named = [pair for model in self.models for pair in model.named_parameters()]
        self._frozen = [(name, p) for name, p in named if not p.requires_grad]
        everything = {id(p) for model in self.models for p in model.parameters()}
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                if any(id(p) not in everything for p in group["params"]):
                    raise ElasticError(
                        f"an optimizer ({type(optimizer).__name__}) holds parameters of no wrapped "
                        "model: pass their module to job.wrap() too"
                    )
        return list(found.values())

    def statistics(self) -> list[torch.Tensor]:
        """Running means and variances of batch normalisation: fp32 buffers."""
        return [
            buffer
            for module in self._modules()
            if isinstance(module, nn.modules.batchnorm._NormBase)  # pyright: ignore
            for buffer in (module.running_mean, module.running_var)
            if buffer is not None and buffer.dtype == torch.float32
        ]

    def buffers(self) -> list[torch.Tensor]:
        """All buffers of all models."""
        return [buffer for model in self.models for buffer in model.buffers()]

    def apply(self, number: int) -> None:
        """Take a step of this optimizer, whatever pass of the loop it is."""
        self._steps[number]()

    def options(self, number: int) -> list[dict[str, Any]]:
        """Of this optimizer's groups: learning rates and the like."""
        groups = self.optimizers[number].param_groups
        return [{k: v for k, v in group.items() if k != "params"} for group in groups]

    def set_options(self, number: int, options: Sequence[dict[str, Any]]) -> None:
        """What `options` gave."""
        for group, each in zip(self.optimizers[number].param_groups, options, strict=True):
            group.update(each)

    def capture(self) -> dict[str, Any]:
        """Everything, as state dicts with the live tensors."""
        return {
            "models": [model.state_dict() for model in self.models],
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "others": self.capture_others(),
        }

    def capture_others(self) -> list[Any]:
        """State dicts of schedulers, scalers and averages."""
        return [other.state_dict() for other in self.others]

    def install(self, tree: dict[str, Any]) -> None:
        """Become what `capture` saw.

        Raises:
            ElasticError: it was taken of other objects.
        """
        mine = (len(self.models), len(self.optimizers), len(self.others))
        theirs = (len(tree["models"]), len(tree["optimizers"]), len(tree["others"]))
        if mine != theirs:
            raise ElasticError(
                f"the state is of {theirs} models, optimizers and others, this script wraps {mine}"
            )
        try:
            for model, state in zip(self.models, tree["models"], strict=True):
                model.load_state_dict(state)
            for optimizer, state in zip(self.optimizers, tree["optimizers"], strict=True):
                optimizer.load_state_dict(state)
        except (RuntimeError, ValueError) as error:
            raise ElasticError(f"the state does not fit this script's model: {error}") from error
        self.install_others(tree["others"])

    def install_others(self, states: Sequence[Any]) -> None:
        """See `capture_others`."""
        for other, state in zip(self.others, states, strict=True):
            other.load_state_dict(state)

    def _modules(self) -> Iterator[nn.Module]:
        for model in self.models:
            yield from model.modules()

    def _unwrapped(self) -> list[Any]:
        wrapped = list(self.others)
        for each in wrapped:  # of SequentialLR and the like
            wrapped += getattr(each, "_schedulers", ())
        kind = torch.optim.lr_scheduler.LRScheduler
        found = [each for each in gc.get_objects() if issubclass(type(each), kind)]
        found = [each for each in found if not any(each is other for other in wrapped)]
        optimizers = set(map(id, self.optimizers))
        return [each for each in found if id(getattr(each, "optimizer", None)) in optimizers]

    def _add_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ElasticError(
                "LBFGS computes the loss several times in one step, and gradients are summed over the "
                "workers once: use an optimizer that needs one backward() a step"
            )
        number = len(self.optimizers)
        self.optimizers.append(optimizer)
        original, clear = optimizer.step, optimizer.zero_grad
        self._steps.append(original)

        def step(this: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            this._opt_called = True  # pyright: ignore
            self.handled = True
            if self._may_apply():
                if number in self._stepped:
                    raise ElasticError(
                        "optimizer.step() was called twice after one backward(): call it once in a pass "
                        "of the loop (an optimizer that needs two passes a step, such as SAM, is not "
                        "supported)"
                    )
                self._stepped.add(number)
                with self._applying(number):
                    original()
                self._applied(number)
            return loss

        # torch's schedulers watch whether `step` was called through an attribute of it
        step._wrapped_by_lr_sched = True  # pyright: ignore
        step._elastic = True  # pyright: ignore
        _guard_scalers()
        optimizer.step = types.MethodType(step, optimizer)

        def zero_grad(this: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            self.handled = self.handled or self._may_apply()
            clear(*args, **kwargs)

        optimizer.zero_grad = types.MethodType(zero_grad, optimizer)

    def _gate(self, thing: Any) -> None:
        """Give the object a class of its own, with methods that look first whether they may act: an
        attribute of the object itself would be part of many a `state_dict()`."""
        kind = cast("type[Any]", type(thing))
        methods = [name for name in _FOLLOWING if callable(getattr(kind, name, None))]
        gated: dict[str, Any] = {name: self._gated(getattr(kind, name)) for name in methods}

        def reduce(this: Any, _protocol: Any) -> Any:
            """`torch.save` and `copy` see an object of the script's class."""
            plain = object.__new__(kind)
            plain.__dict__ = this.__dict__
            # from protocol 2 on pickle compares the class with that of `this`
            return plain.__reduce_ex__(1)

        gated["__reduce_ex__"] = reduce
        gated["_elastic"] = True
        thing.__class__ = type(kind.__name__, (kind,), {"__module__": kind.__module__, **gated})

    def _gated(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def gated(this: Any, *args: Any, **kwargs: Any) -> Any:
            result = None
            self.handled = self.handled or isinstance(this, torch.amp.GradScaler)
            if self._may_apply():
                result = original(this, *args, **kwargs)
            return result

        return gated


def _guard_scalers() -> None:
    """Have torch's GradScaler refuse wrapped optimizers unless it is wrapped too."""
    kind: Any = torch.amp.GradScaler
    original = kind.step
    if getattr(original, "_elastic", False):
        return

    @functools.wraps(original)
    def step(this: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(optimizer.step, "_elastic", False) and not hasattr(this, "_elastic"):
            raise _not_wrapped(this)
        return original(this, optimizer, *args, **kwargs)

    step._elastic = True  # pyright: ignore
    kind.step = step


def _not_wrapped(helper: Any) -> ElasticError:
    return ElasticError(
        f"a {type(helper).__name__} acts on a wrapped optimizer and is not wrapped itself, so workers "
        "would differ in it: pass it to job.wrap() too (or delete it, if it is not used)"
    )
