"""What a test claims to show of a kind's fields it has written."""

from collections.abc import Iterator

import pytest

from tests.scenarios.fields import unwritten
from tests.search.world import WRITTEN


@pytest.fixture(autouse=True)
def claims_are_written(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each run of a test with parameters writes some of the fields, any other test all."""
    WRITTEN.clear()
    yield
    claims = getattr(request.function, "shows", ())
    missing = unwritten(claims, WRITTEN)
    allowed = max(0, len(claims) - 1) if hasattr(request.node, "callspec") else 0
    assert len(missing) <= allowed, f"the test shows fields that it never wrote: {missing}"
