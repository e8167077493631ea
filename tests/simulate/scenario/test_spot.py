"""A value and where it stands."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.simulate.errors import BadInput
from tests.simulate.scenario.small import spot


def test_what_is_wrong_is_told_with_its_line_and_its_place():
    part = spot("a:\n  b:\n    - 1\n    - two\n").entries()["a"].entries()["b"].items()[1]
    with pytest.raises(BadInput) as caught:
        part.whole()
    assert caught.value.message == ("small.yaml, line 4, a.b[1]: a whole number is expected, not 'two'")


def test_a_key_that_means_nothing_is_told_with_the_one_that_was_meant():
    with pytest.raises(BadInput, match=r"line 2, gpu: gpu means nothing here; did you mean gpus\?"):
        spot("name: a\ngpu: 1").fields(("name", "gpus"))
    with pytest.raises(BadInput, match="xyz means nothing here; there are gpus, name"):
        spot("xyz: 1").fields(("name", "gpus"))


def test_quantities_are_those_of_nodes():
    parts = spot("{cpu: 500m, memory: 8Gi, licences: 3, gpu: 0.5}").entries()
    assert parts["cpu"].amount("cpu") == 500
    assert parts["memory"].amount("memory") == 8 << 30
    assert parts["licences"].amount("licences") == 3
    assert parts["gpu"].quota("gpu") == 0.5
    assert parts["cpu"].quota("cpu") == 500.0


def test_durations_are_read_as_everywhere():
    assert [part.seconds() for part in spot("[90s, 10m, 1h30m, 90, 1.5]").items()] == [
        90,
        600,
        5400,
        90,
        1.5,
    ]


@pytest.mark.parametrize(
    ("text", "read", "sentence"),
    [
        ("-1", "whole", "a whole number from 0 up is expected, not -1"),
        ("1.5", "whole", "a whole number is expected, not 1.5"),
        ("true", "whole", "a whole number is expected, not True"),
        ("true", "number", "a number is expected, not True"),
        ("nan", "number", "a number is expected, not 'nan'"),
        (".nan", "number", "a number is expected, not '.nan'"),
        ("-0.5", "number", "a number from 0 up is expected, not -0.5"),
        ("99999999999999999999", "whole", "a whole number from 0 up is expected"),
        ("1e300", "number", "a number from 0 up is expected"),
        ("soon", "seconds", "'soon' is not a duration such as 90s"),
        ("-5", "seconds", "-5 is not a duration"),
        ("yes", "flag", "true or false is expected, not 'yes'"),
        ("[a]", "text", "a word is expected, not a list"),
        ("~", "text", "a word is expected, not nothing"),
        ("a", "items", "a list is expected, not 'a'"),
        ("[1]", "entries", "a map is expected, not a list"),
    ],
)
def test_another_kind_is_one_sentence(text, read, sentence):
    with pytest.raises(BadInput) as caught:
        getattr(spot(text), read)()
    assert sentence in caught.value.message


@pytest.mark.parametrize("text", ["nan", "99Ei", "-1Gi", "[1]", "1e300"])
def test_what_no_memory_can_be(text):
    with pytest.raises(BadInput):
        spot(text).amount("memory")


def test_not_a_number_in_json_too():
    with pytest.raises(BadInput, match="a number"):
        spot('{"weight": NaN}').entries()["weight"].number()


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(value=PLAIN)
def test_whatever_stands_there_is_read_or_told(value):
    (here,) = spot(json.dumps([value])).items()
    for read in ("whole", "number", "seconds", "flag", "text", "texts", "signed", "items", "entries"):
        try:
            getattr(here, read)()
        except BadInput as error:
            assert "small.yaml, line " in error.message
