"""Index sets and maps behave as sets and dicts do, and their text is canonical."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.objects.ranges import IndexMap, IndexSet

indices = st.sets(st.integers(0, 60))
maps = st.dictionaries(st.integers(0, 60), st.sampled_from("abc"))


@pytest.mark.slow
@given(indices)
def test_a_set_and_its_text_are_one(plain: set[int]) -> None:
    made = IndexSet(plain)
    assert list(made) == sorted(plain)
    assert len(made) == len(plain)
    assert IndexSet.parse(made.text) == made
    assert all((index in made) == (index in plain) for index in range(-1, 62))


@pytest.mark.slow
@given(indices, indices)
def test_set_operations(a: set[int], b: set[int]) -> None:
    for other in (IndexSet(b), b):
        assert set(IndexSet(a) | other) == a | b
        assert set(IndexSet(a) - other) == a - b
        assert set(IndexSet(a) & other) == a & b
    assert (IndexSet(a) == IndexSet(b)) == (a == b)


@pytest.mark.slow
@given(maps)
def test_a_map_and_its_text_are_one(plain: dict[int, str]) -> None:
    made = IndexMap(plain)
    assert dict(made) == plain
    assert made == plain
    assert list(made.items()) == sorted(plain.items())
    assert len(made) == len(plain)
    assert IndexMap.parse(made.text) == made
    assert set(made.indices) == set(plain)
    assert set(made.where("a")) == {index for index, value in plain.items() if value == "a"}


@pytest.mark.slow
@given(maps, maps, indices)
def test_map_operations(a: dict[int, str], b: dict[int, str], gone: set[int]) -> None:
    made = IndexMap(a)
    for other in (IndexMap(b), b):
        assert dict(made.set(other)) == {**a, **b}
        assert made.set(other) == IndexMap({**a, **b})
    for cut in (IndexSet(gone), gone):
        assert dict(made.without(cut)) == {i: v for i, v in a.items() if i not in gone}


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5), st.sampled_from("ab")), max_size=8))
def test_of_values_given_twice_the_last_holds(parts: list[tuple[int, int, str]]) -> None:
    text = ",".join(f"{low}-{low + more}={value}" for low, more, value in parts)
    expected = {i: value for low, more, value in parts for i in range(low, low + more + 1)}
    assert dict(IndexMap.parse(text)) == expected


def test_texts_are_short() -> None:
    assert IndexSet([7, 0, 1, 2, 3, 4]).text == "0-4,7"
    assert IndexSet.span(3).text == "0-2"
    assert IndexSet.span(0).text == ""
    assert IndexMap({0: 2, 1: 2, 2: 3}).text == "0-1=2,2=3"
    assert IndexMap.filled(range(100), 1).set({5: 2}).text == "0-4=1,5=2,6-99=1"
    assert IndexMap.parse("0-99=2").number(50) == 2
    assert IndexMap.parse("0-99=2").number(100, 7) == 7
    with pytest.raises(KeyError):
        IndexMap.parse("0=1")[1]


def test_ten_million_indices_cost_what_their_text_costs() -> None:
    everything = IndexSet.parse("0-9999999")
    assert len(everything) == 10_000_000
    assert (everything - IndexSet.parse("5")).text == "0-4,6-9999999"
    assert (everything & IndexSet.parse("3,7-9")).text == "3,7-9"
    assert IndexMap.parse("0-9999999=1").set({5: 2}).without([9]).text == "0-4=1,5=2,6-8=1,10-9999999=1"
    assert everything != IndexMap()


@pytest.mark.parametrize("text", ["a", "1-", "-1", "3-1", "1-2-3", "1;2", "0-99999999", "٣", "1" * 30])
def test_a_bad_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a"):
        IndexSet.parse(text)
    with pytest.raises(ValueError, match=r"is not a"):
        IndexMap.parse(f"{text}=1")
    with pytest.raises(ValueError, match="is not a map"):
        IndexMap.parse("1-3")
