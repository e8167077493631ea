"""What a coordinator without a platform has told, for people: it keeps it beside its record."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

__all__ = ["messages"]


def messages(folder: Path) -> list[str]:
    """In order, without those that repeat numbers only."""
    if not (folder / "record.db").exists():
        return []
    with closing(sqlite3.connect(f"file:{folder / 'record.db'}?mode=ro", uri=True)) as database:
        rows = database.execute("SELECT data FROM report ORDER BY number").fetchall()
    told = [json.loads(data).get("message") for (data,) in rows]
    return [message for message in told if message]
