"""What a test needs and may not find: skipped with its reason, or, where it was promised, a failure."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

__all__ = ["require"]


def require(name: str, reason: str) -> NoReturn:
    """Say that `name` cannot be had here: the test is skipped with the reason.

    `SHOAL_REQUIRE`, a comma-separated list of names or `all`, turns the skips of those into failures:
    continuous integration sets it, so that nothing is left untested there unseen.
    """
    promised = {each.strip() for each in os.environ.get("SHOAL_REQUIRE", "").split(",")}
    if name in promised or "all" in promised:
        pytest.fail(f"{name} is required here: {reason}")
    pytest.skip(reason)
