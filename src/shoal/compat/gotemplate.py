"""The trial templates of Katib v1alpha3: the part of Go's text templates that they use.

`{{.Trial}}`, `{{.NameSpace}}`, and `{{with .HyperParameters}}`, `{{range .}}` (or
`{{range .HyperParameters}}`) with `{{.Name}}` and `{{.Value}}` in it; `{{-` and `-}}` trim white space.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from shoal.objects.errors import Invalid
from shoal.objects.yaml_events import parse_documents

__all__ = ["rendered_template"]

_ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)


def rendered_template(text: str, values: Mapping[str, str]) -> dict[str, Any]:
    """The document that the template describes, with these values of the hyperparameters.

    Raises:
        Invalid: it uses other actions, or is no document.
    """
    tokens = _tokens(text)
    made, at = _block(tokens, 0, values, None)
    if at != len(tokens):
        raise Invalid("the template has an {{end}} too many")
    documents, problems = parse_documents(made)
    document: Any = documents[0].value if len(documents) == 1 else None
    if problems or not isinstance(document, dict):
        raise Invalid(
            f"the template is no YAML document: {problems[0] if problems else 'nothing in it'}"
        )
    return cast("dict[str, Any]", document)


def _tokens(text: str) -> list[tuple[bool, str]]:
    """Texts (False) and actions (True), white space trimmed as the dashes say."""
    tokens: list[tuple[bool, str]] = []
    end, trim = 0, False
    for match in _ACTION.finditer(text):
        before = text[end : match.start()]
        before = before.lstrip() if trim else before
        tokens.append((False, before.rstrip() if match[1] else before))
        tokens.append((True, match[2]))
        end, trim = match.end(), bool(match[3])
    rest = text[end:]
    tokens.append((False, rest.lstrip() if trim else rest))
    return tokens


def _block(
    tokens: list[tuple[bool, str]], at: int, values: Mapping[str, str], item: tuple[str, str] | None
) -> tuple[str, int]:
    """Render up to the end of the block; the text, and where the block ends."""
    parts: list[str] = []
    while at < len(tokens):
        is_action, text = tokens[at]
        if not is_action:
            parts.append(text.replace("${", "$${"))
        elif text == "end":
            return "".join(parts), at
        elif text == "with .HyperParameters":
            inner, at = _block(tokens, at + 1, values, item)
            parts.append(inner)
        elif text in ("range .", "range .HyperParameters"):
            begin = at + 1
            for name, value in values.items():
                inner, at = _block(tokens, begin, values, (name, value))
                parts.append(inner)
        else:
            parts.append(_value(text, item))
        at += 1
    return "".join(parts), at


def _value(action: str, item: tuple[str, str] | None) -> str:
    facts = {".Trial": "${trial.name}", ".NameSpace": "${trial.namespace}"}
    if item is not None:
        facts |= {".Name": item[0], ".Value": item[1]}
    if action not in facts:
        raise Invalid(f"the action {{{{{action}}}}} is not one of Katib's templates")
    return facts[action]
