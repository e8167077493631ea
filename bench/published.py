"""Where published data are, if they are: `$SHOAL_DATA`, or `shared/data` beside the checkout."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["DATA"]

DATA = Path(os.environ.get("SHOAL_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
