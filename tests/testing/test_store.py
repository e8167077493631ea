from __future__ import annotations

from collections import Counter

from shoal.testing.store import StoreContract


def test_no_rule_hides_another_of_the_same_name() -> None:
    names = Counter(
        name for part in StoreContract.__mro__ for name in vars(part) if name.startswith("test_")
    )
    assert len(names) > 80
    assert [name for name, count in names.items() if count > 1] == []
