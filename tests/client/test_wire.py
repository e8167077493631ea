from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.client.wire import data_frame, data_of, frame, frames_in, read_frames

FRAMES = st.lists(st.tuples(st.sampled_from([b"S", b"D", b"Z", b"I"]), st.binary(max_size=200)))


@pytest.mark.slow
@given(FRAMES)
def test_frames_come_out_as_they_went_in(frames: list[tuple[bytes, bytes]]) -> None:
    data = b"".join(frame(tag, payload) for tag, payload in frames)
    assert list(read_frames(io.BytesIO(data).read)) == frames
    buffer = bytearray(data)
    assert list(frames_in(buffer)) == frames
    assert not buffer


@pytest.mark.slow
@given(FRAMES, st.integers(1, 50))
def test_frames_may_come_in_pieces(frames: list[tuple[bytes, bytes]], size: int) -> None:
    data = b"".join(frame(tag, payload) for tag, payload in frames)
    buffer, found = bytearray(), []
    for start in range(0, len(data), size):
        buffer += data[start : start + size]
        found += list(frames_in(buffer))
    assert found == frames


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.floats(0, 1e12), st.integers(0, 2**63), st.binary(max_size=100))
def test_a_piece_of_a_log(source: int, at: float, offset: int, data: bytes) -> None:
    ((tag, payload),) = read_frames(io.BytesIO(data_frame(source, at, offset, data)).read)
    assert (tag, data_of(payload)) == (b"D", (source, at, offset, data))


def test_a_stream_that_is_cut_is_noticed() -> None:
    whole = frame(b"D", b"0123456789")
    for length in range(1, len(whole)):
        with pytest.raises(EOFError):
            list(read_frames(io.BytesIO(whole[:length]).read))


def test_what_is_no_frame_is_not_waited_for() -> None:
    nonsense = b"HTTP/1.1 400 Bad Request"
    with pytest.raises(ValueError, match="larger"):
        list(read_frames(io.BytesIO(nonsense).read))
    with pytest.raises(ValueError, match="larger"):
        list(frames_in(bytearray(nonsense)))
