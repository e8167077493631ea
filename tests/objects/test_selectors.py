"""Kubernetes' label selector syntax."""

from __future__ import annotations

import pytest

from shoal.objects.errors import Invalid
from shoal.objects.selectors import Selector

LABELS = {"team": "vision", "tier": "gpu", "shoal.dev/x": "", "v": "1.2"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("  ", True),
        ("team=vision", True),
        ("team == vision", True),
        ("team=speech", False),
        ("absent=", False),
        ("shoal.dev/x=", True),
        ("team!=vision", False),
        ("absent!=x", True),
        ("tier in (gpu, cpu)", True),
        ("tier in (cpu)", False),
        ("absent in (a,b)", False),
        ("tier notin (cpu)", True),
        ("tier notin (cpu,gpu)", False),
        ("absent notin (x)", True),
        ("tier", True),
        ("!tier", False),
        ("!absent", True),
        ("! absent", True),
        ("team=vision,tier in (gpu,cpu),!absent,v=1.2", True),
        ("team=vision,tier in (cpu),!absent", False),
        ("in in (a)", False),
    ],
)
def test_selects(text: str, expected: bool) -> None:
    assert Selector.parse(text).matches(LABELS) is expected


@pytest.mark.parametrize(
    "text",
    [
        "a=b,", ",", "a b", "a in b", "a in (b", "a=(b)", "=b", "!", "a in (b))", "/a", "a/", "-a",
        "a=b c", "a=-b", "a=" + "x" * 64, "x" * 64, "a!b", "A/b", "a in (b c)", "a>1",
    ],
)  # fmt: skip
def test_refuses_in_one_sentence(text: str) -> None:
    with pytest.raises(Invalid) as raised:
        Selector.parse(text)
    assert "\n" not in str(raised.value)
    assert str(raised.value)
