"""Quantities in Kubernetes' spelling."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.objects.quantities import Bytes, CpuMillis, Quantity, QuantityError, Seconds


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("500m", 500), ("0.5", 500), (".5", 500), ("2", 2000), (2, 2000), (0.1, 100), ("1.", 1000),
        ("0.0001", 1), ("100u", 1), ("1n", 1), ("0", 0), ("1k", 1_000_000), ("1e3", 1_000_000),
        ("1E-2", 10), ("+1", 1000), (1e-7, 1), ("1.2345", 1235), (" 2 ", 2000),
    ],
)  # fmt: skip
def test_cores(text: Any, millis: int) -> None:
    assert CpuMillis.parse(text) == millis


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2Gi", 2**31), ("1.5Gi", 3 * 2**29), ("512Mi", 2**29), ("2G", 2 * 10**9), ("512k", 512_000),
        ("1e3", 1000), ("1E3", 1000), ("1E", 10**18), ("12e-1", 2), ("0.5", 1), (1048576, 2**20),
        ("7Ei", 7 * 2**60), ("0Ei", 0), ("0.1Ki", 103),
    ],
)  # fmt: skip
def test_bytes(text: Any, number: int) -> None:
    assert Bytes.parse(text) == number


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2h", 7200), ("1h30m", 5400), ("250ms", 0.25), ("90", 90), (90, 90), (0.5, 0.5), ("1d", 86400),
        ("1.5h", 5400), ("0s", 0), ("2h30m15s", 9015), (" 5s ", 5), ("0.1s0.2s", 0.3),
    ],
)  # fmt: skip
def test_durations(text: Any, seconds: float) -> None:
    assert Seconds.parse(text) == seconds


@pytest.mark.parametrize("quantity", [CpuMillis, Bytes, Seconds])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "-1",
        "1..2",
        "1 2",
        "0x10",
        "1e",
        "\u0661",
        "1" * 50,
        "1e999",
        "nan",
        True,
        None,
        [],
        -1,
        10**30,
    ],
)
def test_what_is_no_quantity_is_refused_in_one_sentence(quantity: type[Quantity], text: Any) -> None:
    with pytest.raises(QuantityError) as raised:
        quantity.parse(text)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("quantity", "text", "hint"),
    [
        (Bytes, "512m", "512Mi"), (Bytes, "512K", "512Ki"), (Bytes, "2gb", "2G"),
        (Bytes, "2 GiB", "2Gi"), (Bytes, "1kb", "1k"), (Bytes, "1.5g", "1.5Gi"),
        (Bytes, "2 Gi", "2Gi"), (CpuMillis, "500M", "500m"), (Seconds, "10min", "10m"),
        (Seconds, "2 hours", "2h"), (Seconds, "1w", "7d"), (Seconds, "5S", "5s"),
    ],
)  # fmt: skip
def test_a_slip_of_the_unit_is_named(quantity: type[Quantity], text: str, hint: str) -> None:
    with pytest.raises(QuantityError, match=re.escape(f"did you mean {hint}?")):
        quantity.parse(text)
    quantity.parse(hint)


def test_canonical_texts() -> None:
    assert [CpuMillis(n).text() for n in (0, 500, 1000, 1500)] == ["0", "500m", "1", "1500m"]
    sizes = (0, 1, 1000, 1024, 2 * 10**9, 2**31, 1023)
    assert [Bytes(n).text() for n in sizes] == ["0", "1", "1k", "1Ki", "2G", "2Gi", "1023"]
    assert [Seconds(n).text() for n in (0, 0.25, 90, 9000)] == ["0s", "250ms", "1m30s", "2h30m"]


@given(st.integers(0, 2**63 - 1))
def test_whole_numbers_survive_their_text(number: int) -> None:
    for quantity in (CpuMillis, Bytes):
        text = quantity(number).text()
        assert quantity.parse(text) == number
        assert quantity.parse(text).text() == text
        assert re.search(quantity.pattern, text)


def test_a_duration_that_is_too_long_is_told_the_bound_and_no_other_spelling() -> None:
    with pytest.raises(QuantityError) as error:
        Seconds.parse("99999999h")
    assert str(error.value) == "'99999999h' is too long: at most 2777777h46m40s"


@given(st.integers(0, 10**13))
def test_durations_survive_their_text(millis: int) -> None:
    made = Seconds.parse(millis / 1000)
    assert Seconds.parse(made.text()) == made
    assert re.search(Seconds.pattern, made.text())


@given(st.text(alphabet="0123456789.eEnumkKMGTPi+-shd ", max_size=12))
def test_any_text_parses_or_is_refused_and_the_pattern_admits_what_parses(text: str) -> None:
    for quantity in (CpuMillis, Bytes, Seconds):
        try:
            made = quantity.parse(text)
        except QuantityError:
            continue
        assert quantity.parse(made.text()) == made
        assert re.search(quantity.pattern, text.strip())


def test_a_duration_that_is_too_long_is_not_suggested_again() -> None:
    with pytest.raises(QuantityError, match=r"'99999999h' is too long: at most \w+$") as caught:
        Seconds.parse("99999999h")
    assert "did you mean" not in str(caught.value)
