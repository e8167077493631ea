"""Reading a foreign document: values by path, every problem collected, and notes of what is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from shoal.objects.errors import Invalid, Problem
from shoal.objects.meta import API_VERSION

__all__ = ["Converted", "Converter", "Reader", "items_of", "job_document", "mapping", "texts"]


class Converted(NamedTuple):
    """The document of an object of Shoal, and a sentence for each thing that is different there."""

    document: dict[str, Any]
    notes: tuple[str, ...] = ()


class Reader:
    """One document; `check` raises what was found wrong."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self.problems: list[Problem] = []
        self.notes: list[str] = []

    def get(self, *path: str) -> Any:
        """The value at a path; None where there is none."""
        value: Any = self._document
        for name in path:
            value = mapping(value).get(name)
        return value

    def text(self, *path: str) -> str:
        """The text at a path; empty where there is none."""
        value = self.get(*path)
        return "" if value is None else str(value)

    def items(self, *path: str) -> list[dict[str, Any]]:
        """The mappings in the list at a path."""
        value = self.get(*path)
        if not isinstance(value, list):
            if value is not None:
                self.wrong(".".join(path), "wants a list")
            return []
        return [mapping(each) for each in cast("list[Any]", value)]

    def number(self, value: Any, path: str) -> float:
        """A number that may be written as a text; 0 and a problem where it is none."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            self.wrong(path, f"wants a number; found {value!r}")
            return 0.0
        return int(number) if number.is_integer() and "." not in str(value) else number

    def count(self, *path: str, default: int = 1) -> int:
        """A whole number that is not negative."""
        value = self.get(*path)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self.wrong(".".join(path), f"wants a whole number that is not negative; found {value!r}")
            return default
        return value

    def wrong(self, path: str, message: str) -> None:
        """Note a problem."""
        self.problems.append(Problem(path, message))

    def note(self, sentence: str) -> None:
        """Note a difference that does not keep the document from being used."""
        self.notes.append(sentence)

    @property
    def unique_notes(self) -> tuple[str, ...]:
        """Each sentence once, in the order in which they came."""
        return tuple(dict.fromkeys(self.notes))

    def check(self, what: str) -> None:
        """Raise what was found.

        Raises:
            Invalid: anything was.
        """
        if len(self.problems) == 1:
            raise Invalid(f"{what}: {self.problems[0]}", tuple(self.problems))
        if self.problems:
            raise Invalid(f"{what} has {len(self.problems)} problems", tuple(self.problems))


class Converter:
    """What conversions share: the reader, and parameters that have become constants."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.constants: dict[str, str] = {}


def mapping(value: Any) -> dict[str, Any]:
    """The value where it is a mapping, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items_of(value: Any) -> list[dict[str, Any]]:
    """The mappings of a list; none where it is no list."""
    return [mapping(each) for each in cast("list[Any]", value)] if isinstance(value, list) else []


def texts(value: Any) -> list[str]:
    """The items of a list as texts; none where it is no list."""
    return [str(each) for each in cast("list[Any]", value)] if isinstance(value, list) else []


def job_document(reader: Reader, spec: dict[str, Any]) -> Converted:
    """The document of a Job with the name, labels and annotations of the one that is read. A queue that
    its labels name for Kueue is the Job's.

    Raises:
        Invalid: the reader has found problems.
    """
    given = mapping(reader.get("metadata"))
    metadata = {
        key: given[key] for key in ("name", "namespace", "labels", "annotations") if given.get(key)
    }
    if "name" not in metadata and given.get("generateName"):
        reader.wrong("metadata.name", "generateName is not supported: write a name")
    queue = mapping(given.get("labels")).get("kueue.x-k8s.io/queue-name")
    if queue:
        spec = {**spec, "queue": str(queue)}
    reader.check(f"{reader.text('kind')} {metadata.get('name', '')}".strip())
    return Converted(
        {"apiVersion": API_VERSION, "kind": "Job", "metadata": metadata, "spec": spec},
        reader.unique_notes,
    )
