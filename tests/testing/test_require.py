from __future__ import annotations

import pytest

from tests.support.require import require


@pytest.mark.parametrize(
    ("promised", "outcome"),
    [
        ("", pytest.skip.Exception),
        ("postgresql,gpu", pytest.skip.Exception),
        ("postgres", pytest.fail.Exception),
        ("gpu, postgres", pytest.fail.Exception),
        ("all", pytest.fail.Exception),
    ],
)
def test_what_was_promised_must_be_there(
    monkeypatch: pytest.MonkeyPatch, promised: str, outcome: type[Exception]
) -> None:
    monkeypatch.setenv("SHOAL_REQUIRE", promised)
    with pytest.raises(outcome, match="none here"):
        require("postgres", "none here")
