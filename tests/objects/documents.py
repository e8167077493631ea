"""Documents that are right, to be broken, and what admission says of them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from shoal.objects.admit import admit
from shoal.objects.errors import Invalid

__all__ = ["job", "of_kind", "problems", "role"]


def job(**spec: Any) -> dict[str, Any]:
    """A valid Job with these fields of its spec."""
    return {
        "apiVersion": "shoal.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "a"},
        "spec": copy.deepcopy({"roles": [{"command": ["true"]}], **spec}),
    }


def role(**fields: Any) -> dict[str, Any]:
    """A valid Job with these fields of its one role."""
    return job(roles=[{"command": ["true"], **fields}])


def of_kind(kind: str, **spec: Any) -> dict[str, Any]:
    """An object of another kind."""
    return {**job(), "kind": kind, "spec": spec}


def problems(document: Any, **options: Any) -> list[str]:
    """Every problem that admission finds."""
    with pytest.raises(Invalid) as raised:
        admit(document, **options)
    assert "\n" not in str(raised.value)
    return [str(problem) for problem in raised.value.problems]
