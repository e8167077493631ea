"""Every command of the command line pays for what the client imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORBIDDEN = (
    "sqlalchemy", "fastapi", "pydantic", "starlette", "uvicorn", "numpy", "asyncio", "click", "rich",
    "yaml", "httpx", "psutil", "logging", "shoal.server", "shoal.cluster.local", "shoal.store.sql",
    "shoal.history.sql", "shoal.client.watch", "shoal.client.session",
)  # fmt: skip

LOOK = f"""
import sys
import shoal.client
print([name for name in {FORBIDDEN!r} if name in sys.modules])
"""


@pytest.mark.process
@pytest.mark.slow
def test_the_client_is_light() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", LOOK], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
