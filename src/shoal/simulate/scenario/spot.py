"""A value of a scenario's file, and where it stands.

What reads a file asks the spot for what it expects there; a spot that holds something else raises
`BadInput` with the file, the line and the place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from shoal.objects.nearest import did_you_mean
from shoal.objects.paths import Path, spell
from shoal.objects.quantities import Bytes, CpuMillis, QuantityError, Seconds
from shoal.objects.yaml_events import Document
from shoal.simulate.errors import BadInput

__all__ = ["MOST", "Spot", "Spots"]

MOST = 2**40
"""Larger numbers, but of bytes, are taken for an error: their sums must stay far from 2**63."""

_MOST_BYTES = 2**50
"""Of memory on one node, for one task, or for one queue."""


@dataclass(frozen=True)
class Spot:
    """One value. Every method but `at` and `wrong` raises `BadInput` for a value of another kind."""

    value: Any
    path: Path
    document: Document
    file: str

    def wrong(self, sentence: str) -> BadInput:
        """The error to raise: the sentence after where this stands."""
        line, _ = self.document.locate(self.path)
        place = f", {spell(self.path)}" if self.path else ""
        return BadInput(f"{self.file}, line {line}{place}: {sentence}")

    def at(self, part: str | int, value: Any) -> Spot:
        """A part of this value."""
        return Spot(value, (*self.path, part), self.document, self.file)

    def fields(self, known: Iterable[str]) -> Spots:
        """The parts of a map that has no other keys than `known`."""
        names = tuple(known)
        parts = self.entries()
        for key, part in parts.items():
            if key not in names:
                near = did_you_mean(key, names) or f"; there are {', '.join(sorted(names))}"
                raise part.wrong(f"{key} means nothing here{near}")
        return Spots(parts, self)

    def entries(self) -> dict[str, Spot]:
        """The parts of a map with any keys."""
        value = self.value
        if not isinstance(value, dict):
            raise self.wrong(f"a map is expected, not {self._said()}")
        parts = cast("dict[str, Any]", value)
        return {key: self.at(key, part) for key, part in parts.items()}

    def items(self) -> list[Spot]:
        """The parts of a list."""
        value = self.value
        if not isinstance(value, list):
            raise self.wrong(f"a list is expected, not {self._said()}")
        return [self.at(at, part) for at, part in enumerate(cast("list[Any]", value))]

    def one_or_more(self) -> list[Spot]:
        """The parts of a list, or this alone where it is none."""
        return self.items() if isinstance(self.value, list) else [self]

    def text(self) -> str:
        """Text that is not empty."""
        if not isinstance(self.value, str) or not self.value:
            raise self.wrong(f"a word is expected, not {self._said()}")
        return self.value

    def texts(self) -> tuple[str, ...]:
        """One word, or a list of them."""
        return tuple(part.text() for part in self.one_or_more())

    def flag(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            raise self.wrong(f"true or false is expected, not {self._said()}")
        return self.value

    def whole(self, least: int = 0) -> int:
        """A whole number from `least` up."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(f"a whole number is expected, not {self._said()}")
        if not least <= value <= MOST:
            raise self.wrong(f"a whole number from {least} up is expected, not {self._said()}")
        return value

    def signed(self) -> int:
        """A whole number, below 0 too."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MOST:
            raise self.wrong(f"a whole number is expected, not {self._said()}")
        return value

    def number(self) -> float:
        """A finite number from 0 up."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(f"a number is expected, not {self._said()}")
        if not (math.isfinite(value) and 0 <= value <= MOST):
            raise self.wrong(f"a number from 0 up is expected, not {self._said()}")
        return float(value)

    def seconds(self) -> float:
        """A duration, or a time since the file's clock began: `90s`, `10m`, `1h30m`, 90."""
        try:
            return float(Seconds.parse(self.value))
        except QuantityError as error:
            raise self.wrong(str(error)) from error

    def amount(self, resource: str) -> int:
        """Of a resource of nodes: thousandths of a core for `cpu` (`500m`, 2), bytes for `memory`
        (`8Gi`), a plain whole number for any other."""
        kind = {"cpu": CpuMillis, "memory": Bytes}.get(resource)
        if kind is None:
            return self.whole()
        try:
            value = int(kind.parse(self.value))
        except QuantityError as error:
            raise self.wrong(str(error)) from error
        if value > (_MOST_BYTES if kind is Bytes else MOST):
            raise self.wrong(f"{self._said()} is more than any cluster has")
        return value

    def quota(self, resource: str) -> float:
        """Of a resource of queues: as `amount`, and GPUs, in parts too, for `gpu`."""
        return self.number() if resource == "gpu" else float(self.amount(resource))

    def _said(self) -> str:
        value: object = self.value
        if value is None:
            return "nothing"
        if isinstance(value, list | dict):
            return "a list" if isinstance(value, list) else "a map"
        said = repr(value)
        return said if len(said) <= 60 else f"{said[:57]}..."


@dataclass(frozen=True)
class Spots:
    """The parts of a map whose keys are all known."""

    parts: dict[str, Spot]
    whole: Spot
    """The map."""

    def __contains__(self, key: str) -> bool:
        return key in self.parts

    def get(self, key: str) -> Spot | None:
        """The part, None where it is absent or null."""
        part = self.parts.get(key)
        return None if part is None or part.value is None else part

    def need(self, key: str) -> Spot:
        """The part. Raises `BadInput` where it is absent."""
        part = self.get(key)
        if part is None:
            raise self.whole.wrong(f"{key} is missing")
        return part

    def text(self, key: str, default: str = "") -> str:
        """A word, `default` where it is absent."""
        part = self.get(key)
        return default if part is None else part.text()

    def texts(self, key: str) -> tuple[str, ...]:
        """One word or several, none where it is absent."""
        part = self.get(key)
        return () if part is None else part.texts()

    def whole_number(self, key: str, default: int = 0, least: int = 0) -> int:
        """A whole number, `default` where it is absent."""
        part = self.get(key)
        return default if part is None else part.whole(least)

    def optional_number(self, key: str) -> int | None:
        """A whole number, None where it is absent."""
        part = self.get(key)
        return None if part is None else part.whole()

    def flag(self, key: str, default: bool) -> bool:
        """True or false, `default` where it is absent."""
        part = self.get(key)
        return default if part is None else part.flag()

    def seconds(self, key: str, default: float = 0.0) -> float:
        """A duration, `default` where it is absent."""
        part = self.get(key)
        return default if part is None else part.seconds()

    def optional_seconds(self, key: str) -> float | None:
        """A duration, None where it is absent."""
        part = self.get(key)
        return None if part is None else part.seconds()

    def labels(self, key: str) -> dict[str, str]:
        """A map of words, empty where it is absent."""
        part = self.get(key)
        return {} if part is None else {name: word.text() for name, word in part.entries().items()}

    def amounts(self) -> dict[str, int]:
        """By resource: `cpu` and `memory`, and what stands under `amounts`."""
        found = {name: part.amount(name) for name in ("cpu", "memory") if (part := self.get(name))}
        others = self.get("amounts")
        if others is not None:
            for name, part in others.entries().items():
                if name in (*found, "gpu", "gpus"):
                    raise part.wrong(f"{name} has a key of its own, beside amounts")
                found[name] = part.amount(name)
        return found

    def quotas(self, key: str) -> dict[str, float]:
        """By resource, GPUs as `gpu`, empty where it is absent."""
        part = self.get(key)
        if part is None:
            return {}
        entries = part.entries()
        if "gpus" in entries:
            raise entries["gpus"].wrong("queues count gpu")
        return {name: value.quota(name) for name, value in entries.items()}

    def counts(self, key: str) -> dict[str, int]:
        """Whole numbers by name, empty where it is absent."""
        part = self.get(key)
        return {} if part is None else {name: value.whole() for name, value in part.entries().items()}
