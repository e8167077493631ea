"""The docstrings of a Struct's fields: the one place where a field is described.

Python keeps no docstring of an attribute, so they are read from the source of the module, which is
installed with it. Without source (only compiled files) there are none, and nothing else changes.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.util
import inspect
from functools import cache

import msgspec

__all__ = ["field_docs", "summary"]


@cache
def field_docs(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Attribute to its docstring on one line; those without one are not there."""
    docs: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        docs |= _documented(base.__module__).get(base.__name__, {})
    return docs


def summary(struct: type[msgspec.Struct]) -> str:
    """The docstring of the class, on one line."""
    return _one_line(struct.__doc__ or "")


@cache
def _documented(module: str) -> dict[str, dict[str, str]]:
    """Class to attribute to docstring."""
    spec = importlib.util.find_spec(module)
    loader = spec.loader if spec is not None else None
    source = loader.get_source(module) if isinstance(loader, importlib.abc.InspectLoader) else None
    classes = (node for node in ast.parse(source or "").body if isinstance(node, ast.ClassDef))
    return {node.name: _attributes(node) for node in classes}


def _attributes(node: ast.ClassDef) -> dict[str, str]:
    docs: dict[str, str] = {}
    for field, text in zip(node.body, node.body[1:], strict=False):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as said)),
            ):
                docs[name] = _one_line(said)
            case _:
                pass
    return docs


def _one_line(text: str) -> str:
    return " ".join(inspect.cleandoc(text).split())
