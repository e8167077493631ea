"""A header that is half written says nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.elastic.checkpoint.header import COMMITTED, EMPTY, PAGE_BYTES, STAGED, Header, pack, unpack

OLD = Header(STAGED, 4, 40, 1, 4096, 77, bytes(range(32)))
NEW = Header(COMMITTED, 5, 50, 2, 8192, 99, bytes(range(32, 64)), bytes(range(64, 96)))


def test_round_trip() -> None:
    for header in (OLD, NEW, Header(EMPTY)):
        assert unpack(pack(header).ljust(PAGE_BYTES, b"x")) == header
    assert len(pack(NEW)) < PAGE_BYTES


def test_torn_headers_are_none_or_one_of_the_two() -> None:
    old, new = pack(OLD), pack(NEW)
    for cut in range(len(new)):
        assert unpack(new[:cut] + old[cut:]) in (None, OLD, NEW), cut
        assert unpack(new[:cut]) is None
    assert unpack(bytes(PAGE_BYTES)) is None


@given(st.integers(0, len(pack(NEW)) * 8 - 1))
def test_a_flipped_bit_is_seen(bit: int) -> None:
    page = bytearray(pack(NEW))
    page[bit // 8] ^= 1 << bit % 8
    assert unpack(bytes(page)) is None
