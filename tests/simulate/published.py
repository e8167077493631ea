"""Published data, where they are at hand."""

import pytest
from bench.published import DATA

__all__ = ["DATA", "needs_pollux"]

needs_pollux = pytest.mark.skipif(
    not (DATA / "pollux").is_dir(), reason=f"the published Pollux data are not in {DATA}"
)
