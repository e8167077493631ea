from __future__ import annotations

from bench.elastic.lines import changes

PLAIN = '''"""One."""

import torch

kept = 1
for epoch in range(3):
    for batch in loader:
        step(batch)
        print("kept")
'''


def test_lines_that_are_new_or_different_count_once_and_removed_ones_apart() -> None:
    found = changes(
        PLAIN,
        '''"""Two."""

import torch
import added

kept = 1
for batch in shards(3):
    step(batch)
    print("kept")
''',
    )
    assert (found.written, found.removed) == (2, 1)
    assert "+import added" in found.diff
    assert "-for epoch in range(3):" in found.diff
    assert "print" not in found.diff


def test_the_same_script_has_not_changed() -> None:
    found = changes(PLAIN, PLAIN.replace("    ", "  "))
    assert (found.written, found.removed, found.diff) == (0, 0, "")
