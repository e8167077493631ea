"""Rows of a CSV file with a header; what cannot be used is told in a sentence that names the line."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from shoal.simulate.errors import BadInput

__all__ = ["MOST", "Row", "amount", "read_rows"]

Row = Mapping[str, str | None]

MOST = 2**40
"""Larger amounts are taken for an error: their sums must stay far from 2**63."""


def read_rows(
    path: Path, columns: Sequence[str], empty: str = "has a header and nothing else"
) -> list[tuple[str, Row]]:
    """Where each row stands, in words, and its cells. Raises `BadInput` for a file that cannot be read,
    lacks one of `columns`, has a row longer than its header, or no rows: then it says `empty`."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            missing = [name for name in columns if name not in (table.fieldnames or ())]
            if missing:
                raise BadInput(f"{path} lacks the column {', '.join(missing)}")
            rows: list[tuple[str, Row]] = [(f"{path}, line {table.line_num}", row) for row in table]
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path} is no CSV file, or not in UTF-8: byte {error.start} is no text"
        ) from error
    except csv.Error as error:
        raise BadInput(f"{path} is no CSV file: {error}") from error
    if not rows:
        raise BadInput(f"{path} {empty}")
    for where, row in rows:
        if None in row:
            raise BadInput(f"{where}: it has more cells than the header has columns")
    return rows


def amount(where: str, row: Row, column: str) -> int:
    """A whole number, not below 0. Raises `BadInput`."""
    said = row[column]
    try:
        value = int(said or "")
    except ValueError:
        raise BadInput(
            f"{where}: {column} is a whole number, not {repr(said) if said else 'nothing'}"
        ) from None
    if not 0 <= value <= MOST:
        raise BadInput(f"{where}: {column} cannot be {value}")
    return value
