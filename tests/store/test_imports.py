"""What a process pays for that only talks about stores, and for one that opens a store at each start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize("module", ["base", "memory"])
def test_the_protocol_and_memory_need_no_database(module: str) -> None:
    loaded = modules_after(f"import shoal.store.{module}")
    assert not loaded & {"sqlalchemy", "alembic", "sqlite3", "psycopg", "asyncio", "pytest"}


@pytest.mark.slow
def test_a_store_that_is_up_to_date_needs_no_alembic(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    for _ in ("made", "opened again"):
        loaded = modules_after(f"from shoal.store.sql import open_sql; open_sql({path!r}).close()")
        assert "sqlalchemy" in loaded
        assert not loaded & {"alembic", "mako", "psycopg"}
