"""A state as plain data and named tensors, and back.

The plain part is JSON: numbers, text and lists are themselves, everything else is an object of one
entry with a key for its type. Reading it can make nothing but the types listed here, so a file from
elsewhere runs no code. Tensors are taken out and named by their path (`model.fc.weight`), the same
tensor met twice once.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch

from shoal.elastic.errors import CheckpointError

__all__ = ["Json", "join", "split"]

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def split(state: Mapping[str, Any]) -> tuple[Json, dict[str, torch.Tensor]]:
    """The plain part of a nested state, and its tensors by name.

    Held are: tensors (dense, any device and dtype), numpy arrays and scalars, None, bool, int, float,
    complex, str, bytes, list, tuple, set, and mappings with keys of the plain ones among these. Named
    tuples come back as tuples, all mappings as dicts. Nothing is copied.

    Raises:
        CheckpointError: `Unsupported`, naming the path and the type.
    """
    tensors = _Tensors()
    return _encode(state, (), tensors), tensors.by_name


def join(document: Json, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """The state that `split` took apart.

    Raises:
        CheckpointError: `Damaged` when the document is not one that `split` writes.
    """
    try:
        state = _decode(document, tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError("Damaged", f"the plain part cannot be read ({error!r})") from error
    if not isinstance(state, dict):
        raise CheckpointError("Damaged", "the plain part is not a mapping")
    return cast("dict[str, Any]", state)


class _Tensors:
    """Names for tensors; an alias of one that is already named has its name."""

    def __init__(self) -> None:
        self.by_name: dict[str, torch.Tensor] = {}
        self._names: dict[tuple[object, ...], str] = {}

    def name(self, path: tuple[str, ...], tensor: torch.Tensor) -> str:
        tensor = tensor.detach()
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
            raise _unsupported(path, f"a tensor that is {tensor.layout} on {tensor.device}")
        memory = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and memory in self._names:
            return self._names[memory]
        wanted = name = ".".join(path)
        number = 1
        while name in self.by_name:  # {"a.b": {"c": _}, "a": {"b.c": _}}
            number += 1
            name = f"{wanted}~{number}"
        self.by_name[name] = tensor
        self._names[memory] = name
        return name


def _encode(value: Any, path: tuple[str, ...], tensors: _Tensors) -> Json:  # Any: a user's state
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, torch.Tensor):
        return {"tensor": tensors.name(path, value)}
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return {
            "dict": [
                [_key(key, path), _encode(inner, (*path, str(key)), tensors)] for key, inner in pairs
            ]
        }
    if isinstance(value, list):
        return _items(cast("list[Any]", value), path, tensors)
    if isinstance(value, tuple):
        return {"tuple": _items(list(cast("tuple[Any, ...]", value)), path, tensors)}
    if isinstance(value, set | frozenset):
        members = cast("set[Any]", value)
        return {"set": [_key(member, path) for member in members]}
    if isinstance(value, bytes | bytearray):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    return _encode_numpy(value, path, tensors)


def _items(values: list[Any], path: tuple[str, ...], tensors: _Tensors) -> list[Json]:
    return [_encode(inner, (*path, str(at)), tensors) for at, inner in enumerate(values)]


def _key(key: Any, path: tuple[str, ...]) -> Json:
    if isinstance(key, Mapping | list):
        raise _unsupported(path, "a mapping or set with a mutable key")
    return _encode(key, (*path, str(key)), _NoTensors())


class _NoTensors(_Tensors):
    """Inside a key no tensor can be."""

    def name(self, path: tuple[str, ...], tensor: torch.Tensor) -> str:
        raise _unsupported(path, "a key that holds a tensor")


def _encode_numpy(value: Any, path: tuple[str, ...], tensors: _Tensors) -> Json:
    # by name: numpy is not needed, but a value of it means that it is imported
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in cast("type[object]", type(value)).__mro__}
    if "numpy.ndarray" in kinds:
        try:
            return {"numpy": tensors.name(path, torch.as_tensor(value))}
        except (TypeError, ValueError) as error:
            raise _unsupported(path, f"a numpy array of {value.dtype}") from error
    if "numpy.generic" in kinds:
        return _encode(value.item(), path, tensors)
    raise _unsupported(path, f"a {_kind(value)}")


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _unsupported(path: tuple[str, ...], what: str) -> CheckpointError:
    return CheckpointError(
        "Unsupported",
        f"state {'.'.join(path) or '(the whole)'} is {what}: a checkpoint holds tensors, numbers, text, "
        "bytes, lists, tuples, sets and mappings; give its state_dict() instead",
    )


def _decode(document: Any, tensors: Mapping[str, torch.Tensor]) -> Any:  # Any: from a file
    if document is None or isinstance(document, bool | int | float | str):
        return document
    if isinstance(document, list):
        return [_decode(inner, tensors) for inner in cast("list[Any]", document)]
    ((kind, content),) = document.items()
    return _DECODERS[kind](content, tensors)


def _decode_dict(content: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    return {_decode(key, tensors): _decode(value, tensors) for key, value in content}


_DECODERS: dict[str, Callable[[Any, Mapping[str, torch.Tensor]], Any]] = {
    "dict": _decode_dict,
    "tuple": lambda content, tensors: tuple(_decode(content, tensors)),
    "set": lambda content, tensors: set(_decode(content, tensors)),
    "bytes": lambda content, _: base64.b64decode(content, validate=True),
    "complex": lambda content, _: complex(*content),
    "tensor": lambda content, tensors: tensors[content],
    "numpy": lambda content, tensors: tensors[content].numpy(),
}
