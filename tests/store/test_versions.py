from __future__ import annotations

import pytest

from shoal.objects.errors import Expired, Invalid
from shoal.store.backend import Cursor, new_epoch, read_cursor, read_version, version_text


def test_a_version_and_back() -> None:
    epoch = new_epoch()
    assert read_version(version_text(epoch, 17), epoch) == 17
    assert new_epoch() != epoch


@pytest.mark.parametrize(
    "text", ["", "17", "other.17", "e.", "e.-1", "e.1x", "e.\u0661", "e.1.2", "e. 1"]
)
def test_what_is_no_version_of_this_store(text: str) -> None:
    with pytest.raises(Expired):
        read_version(text, "e")


def test_a_cursor_and_back() -> None:
    cursor = Cursor("e.17", "team-a", "digits")
    assert read_cursor(cursor.text()) == cursor


@pytest.mark.parametrize("text", ["x", "!!!", "bnVsbA", "e30", "WzEsMiwzXQ", "WyJhIl0", "\u00e9", "/w"])
def test_what_is_no_cursor(text: str) -> None:
    with pytest.raises(Invalid):
        read_cursor(text)
