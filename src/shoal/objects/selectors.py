"""Label selectors in Kubernetes' syntax: `a=b,c!=d,e in (x,y),f notin (z),g,!h`.

Requirements are joined by commas and all must hold. As in Kubernetes, `!=` and `notin` also match an
object that has no such label at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from shoal.objects.errors import Invalid
from shoal.objects.paths import Finding, Path

_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_KEY = r"(?P<key>[-A-Za-z0-9_./]+)"
_SET = re.compile(_KEY + r"\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUAL = re.compile(_KEY + r"\s*(?P<op>==|=|!=)\s*(?P<value>[-A-Za-z0-9_.]*)")
_EXISTS = re.compile(r"(?P<op>!?)\s*" + _KEY)

_MOST_REQUIREMENTS = 100
_MOST_VALUES = 1000
"""More would be an expression that a database refuses."""

Operator = Literal["in", "notin", "exists", "absent"]


@dataclass(frozen=True)
class Requirement:
    """One condition on one label."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels fulfil it."""
        if self.operator == "exists":
            return self.key in labels
        if self.operator == "absent":
            return self.key not in labels
        if self.operator == "in":
            return self.key in labels and labels[self.key] in self.values
        return self.key not in labels or labels[self.key] not in self.values


@dataclass(frozen=True)
class Selector:
    """Requirements that must all hold; none: everything matches."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Selector:
        """Read a selector; blank text selects everything.

        Raises:
            Invalid: the text is no selector (the message quotes the part that is wrong), or is too long.
        """
        if not text.strip():
            return cls()
        parts = _parts(text)
        if len(parts) > _MOST_REQUIREMENTS:
            raise Invalid(
                f"a selector has at most {_MOST_REQUIREMENTS} requirements; found {len(parts)}"
            )
        made = cls(tuple(_requirement(part, text) for part in parts))
        if (values := sum(len(each.values) for each in made.requirements)) > _MOST_VALUES:
            raise Invalid(f"a selector names at most {_MOST_VALUES} values; found {values}")
        return made

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels fulfil every requirement."""
        return all(requirement.matches(labels) for requirement in self.requirements)


def label_key_problem(key: str) -> str:
    """What is wrong with a label's key, in words; empty when nothing is."""
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not _PREFIX.fullmatch(prefix)):
        return (
            f"{key!r} is not a label key: [prefix/]name, the name at most 63 letters, digits and -_. "
            "with a letter or digit at both ends"
        )
    return ""


def label_value_problem(value: str) -> str:
    """What is wrong with a label's value, in words; empty when nothing is."""
    if value and not _NAME.fullmatch(value):
        return (
            f"{value!r} is not a label value: at most 63 letters, digits and -_. "
            "with a letter or digit at both ends"
        )
    return ""


def _parts(text: str) -> list[str]:
    """The text between commas that stand outside parentheses."""
    parts, depth, start = list[str](), 0, 0
    for position, letter in enumerate(text):
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return [part.strip() for part in parts]


def _requirement(part: str, text: str) -> Requirement:
    if match := _SET.fullmatch(part):
        values = frozenset(value.strip() for value in match["values"].split(","))
        operator: Operator = "in" if match["op"] == "in" else "notin"
    elif match := _EQUAL.fullmatch(part):
        values = frozenset((match["value"],))
        operator = "notin" if match["op"] == "!=" else "in"
    elif match := _EXISTS.fullmatch(part):
        values = frozenset[str]()
        operator = "absent" if match["op"] else "exists"
    else:
        what = f"{part!r} in the selector {text!r}" if part != text.strip() else f"{text!r}"
        raise Invalid(
            f"{what} is not a label requirement" if part else f"the selector {text!r} has an empty part",
            hint="write key=value, key!=value, key in (a,b), key notin (a), key or !key",
        )
    problems = [label_key_problem(match["key"]), *map(label_value_problem, sorted(values))]
    for problem in filter(None, problems):
        raise Invalid(problem)
    return Requirement(match["key"], operator, values)


def label_findings(labels: Mapping[str, str], path: Path) -> Iterator[Finding]:
    """Everything wrong with the labels at `path`."""
    for key, value in labels.items():
        if problem := label_key_problem(key):
            yield Finding((*path, key), problem)
        if problem := label_value_problem(value):
            yield Finding((*path, key), problem)
