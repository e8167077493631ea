from __future__ import annotations

import io

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.client.sse import ServerEvent, parse, render


@given(st.lists(st.dictionaries(st.text(), st.text(), max_size=3), max_size=5))
@pytest.mark.slow
def test_documents_come_out_as_they_went_in(documents: list[dict[str, str]]) -> None:
    events = [
        ServerEvent(f"v.{number}", "Added", msgspec.json.encode(document))
        for number, document in enumerate(documents)
    ]
    assert list(parse(io.BytesIO(b"".join(map(render, events))))) == events


def test_comments_and_unknown_fields_are_left_out() -> None:
    text = b": still here\n\nid: 1\nretry: 5\nevent: Added\ndata: {}\n\n: and here\n\n"
    assert list(parse(io.BytesIO(text))) == [ServerEvent("1", "Added", b"{}")]


def test_an_event_that_is_cut_off_is_not_given() -> None:
    text = b"id: 1\nevent: Added\ndata: {}\n\nid: 2\nevent: Added\ndata: {"
    assert [event.id for event in parse(io.BytesIO(text))] == ["1"]


def test_lines_may_end_as_elsewhere_and_data_may_have_several() -> None:
    text = b"id: 1\r\nevent: Added\r\ndata: a\r\ndata:b\r\n\r\n"
    assert list(parse(io.BytesIO(text))) == [ServerEvent("1", "Added", b"a\nb")]


def test_an_id_holds_until_there_is_another() -> None:
    text = b"id: 1\nevent: A\ndata: x\n\nevent: B\ndata: y\n\n"
    assert [event.id for event in parse(io.BytesIO(text))] == ["1", "1"]


def test_a_document_is_one_line_on_the_wire() -> None:
    assert render(ServerEvent("1", "Added", b'{\n "a": 1\n}')).count(b"\n") == 4
