"""Every scenario of the reference that must work is named by a test."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]

WANTED = {
    *(f"A{number}" for number in range(1, 14)),
    *(f"B{number}" for number in range(1, 13)),
    *(f"C{number}" for number in range(1, 8)),
    "D1",
    *(f"N{number}" for number in (1, 2, 3, 6, 7, 8, 9, 10, 11, 12)),
    *(f"P{number}" for number in (1, 2, 3)),
    "V1",
    "H1",
}

LIST = re.compile(r"training-([A-Z]\d+[a-z]?(?:(?:, | and | to |, training-)[A-Z]\d+[a-z]?)*)")


def named(text: str) -> set[str]:
    """The scenarios in `training-A1 to A4`, `training-N1, N6 and A13`."""
    found: set[str] = set()
    for names in LIST.findall(text):
        words = re.findall(r"([A-Z])(\d+)[a-z]?( to )?", names)
        for place, (letter, number, onwards) in enumerate(words):
            end = int(words[place + 1][1]) if onwards else int(number)
            found |= {f"{letter}{each}" for each in range(int(number), end + 1)}
    return found


def test_lists_of_names_are_read() -> None:
    assert named("training-A1 to A4: x; training-N1, N6 and A13; training-C1b") == {
        "A1", "A2", "A3", "A4", "N1", "N6", "A13", "C1",
    }  # fmt: skip


def test_no_scenario_is_missing() -> None:
    docstrings = {
        path: "\n".join(re.findall(r'"""(.*?)"""', path.read_text(), re.DOTALL))
        for path in TESTS.rglob("test_*.py")
        if path != Path(__file__)
    }
    missing = WANTED - set().union(*map(named, docstrings.values()))
    assert not missing, f"no test names {sorted(missing)}"


def test_the_table_tells_where_each_is() -> None:
    table = (Path(__file__).parent / "__init__.py").read_text()
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| ")]
    told = set().union(*(named(f"training-{row.strip()}") for row in rows))
    assert told >= WANTED, f"not in the table: {sorted(WANTED - told)}"
    files = re.findall(r"`([\w/]+)`", table.partition("| scenario")[2])
    root = Path(__file__).parent
    for name in files:
        places = [
            root / f"{name}.py",
            root.parent / f"{name}.py",
            root.parent / name,
            TESTS / ".." / name,
        ]
        places += [TESTS.parent / f"{name}.py"]
        assert any(place.exists() for place in places), f"{name} is not there"
