"""Where published data are, if they are: `$SHOAL_DATA`, or `shared/data` beside the checkout."""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("SHOAL_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")

needs_pollux = pytest.mark.skipif(
    not (DATA / "pollux").is_dir(), reason=f"the published Pollux data are not in {DATA}"
)
