"""JSON without json, and files whose place on the disk is taken early."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.cluster.local import supervisor_files as files

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | st.text(st.characters(exclude_categories=[])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(), VALUES))
@pytest.mark.slow
def test_what_is_written_is_what_json_reads_and_the_other_way_round(value):
    assert json.loads(files.format_json(value)) == value
    assert files.parse_json(json.dumps(value).encode()) == value
    assert files.parse_json(json.dumps(value, ensure_ascii=True, indent=1).encode() + b"\n") == value


@pytest.mark.parametrize(
    "document", [b"", b" ", b"{", b"[1]", b'{"a":1}x', b'{"a":01}', b'"text"', b"\xff{}"]
)
def test_what_is_no_object_is_refused(document):
    with pytest.raises(ValueError, match=r"JSON|decode|line 1 column"):
        files.parse_json(document)


def test_bytes_that_are_no_text_survive():
    odd = os.fsdecode(b"a\xff\xc3")
    assert os.fsencode(files.parse_json(files.format_json({"x": odd}).encode())["x"]) == b"a\xff\xc3"


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    folder = str(tmp_path)
    assert files.read(folder, "x.json") is None
    files.write(folder, "x.json", {"a": ["b" * 100_000]})
    assert files.read(folder, "x.json") == {"a": ["b" * 100_000]}
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_the_exit_is_published_once_and_alone(tmp_path):
    draft = files.ExitDraft(str(tmp_path))
    assert files.read(str(tmp_path), "exit.json") is None
    draft.publish({"exit_code": 3})
    assert (tmp_path / "exit.json").read_text() == '{"exit_code": 3}'
    assert [path.name for path in tmp_path.iterdir()] == ["exit.json"]


def test_the_status_is_written_over(tmp_path):
    status = files.Status(str(tmp_path))
    assert files.Status.read(str(tmp_path)) is None
    status.record({"reason": "CommandNotFound", "message": "x" * 100})
    status.record({"exit_code": 3})
    os.close(status.descriptor)
    assert files.Status.read(str(tmp_path)) == {"exit_code": 3}
