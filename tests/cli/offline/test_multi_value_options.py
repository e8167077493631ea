"""Which policies a command compares."""

from __future__ import annotations

import pytest

from shoal.cli.failures import Usage
from shoal.cli.offline.multi_value_options import chosen

KNOWN = {"fifo": 1, "easy": 2}


def test_policies_are_compared_in_the_order_named_and_once_each() -> None:
    assert chosen(["easy", "fifo", "easy"], KNOWN, ["fifo"]) == ("easy", "fifo")
    assert chosen([], KNOWN, ["fifo"]) == ("fifo",)


def test_an_unknown_policy_is_told_with_those_that_there_are() -> None:
    with pytest.raises(Usage, match="there is no policy 'lifo'") as told:
        chosen(["fifo", "lifo"], KNOWN, ["fifo"])
    assert told.value.hint == "there are fifo, easy"
