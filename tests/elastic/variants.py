"""Parameters of tests with real processes: the most telling are in the suite, the others in the soak."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["soak"]


def soak(*values: Any) -> Any:
    """A parameter set that only `make soak` runs."""
    return pytest.param(*values, marks=pytest.mark.soak)
