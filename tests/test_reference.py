"""The page of all fields is the code's."""

from __future__ import annotations

from pathlib import Path

from tools.reference import page

from shoal.objects.kinds import KINDS
from shoal.objects.schema import field_paths

CHECKED_IN = Path(__file__).parents[1] / "docs" / "manifests.md"


def test_the_page_is_the_one_checked_in() -> None:
    """If a change is meant: python -m tools.reference > docs/manifests.md"""
    assert CHECKED_IN.read_text() == page()


def test_every_field_is_on_it() -> None:
    text = page()
    for kind in KINDS.values():
        part = text.split(f"\n# {kind.name}\n")[1].split("\n# ")[0]
        for path in field_paths(kind):
            name = path.rpartition(".")[2].removesuffix("[]")
            assert f"\n| `{name}` |" in part, (kind.name, path)


def test_a_part_is_told_of_once_and_named_by_where_that_is() -> None:
    text = page()
    assert text.count("## spec.quota\n") == 1
    assert "## spec.userLimit" not in text
    assert "| `userLimit` | see `spec.quota` |" in text
    assert "| `roles` | a list, see `spec.roles[]` | required |" in text
    assert "| `curve` | a list of numbers |" in text
    assert "| `gracePeriod` | a duration such as 90s, 10m or 2h30m | `30s` |" in text
