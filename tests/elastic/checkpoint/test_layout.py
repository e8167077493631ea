"""Tensors in a flat buffer: every dtype, every shape, and hashes that see one changed bit."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from shoal.elastic.checkpoint import layout
from shoal.elastic.errors import CheckpointError

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.float8_e4m3fn,
]
TENSORS = {
    **{str(dtype): torch.arange(5, dtype=torch.float32).to(dtype) for dtype in DTYPES},
    "scalar": torch.tensor(2.5),
    "empty": torch.empty(0, 3),
    "transposed": torch.arange(6.0).view(2, 3).t(),
    "every second": torch.arange(9)[::2],
    "parameter": torch.nn.Parameter(torch.ones(2)).detach(),
}


def filled() -> tuple[tuple[layout.Place, ...], torch.Tensor]:
    places = layout.plan(TENSORS)
    buffer = torch.zeros(layout.extent(places), dtype=torch.uint8)
    layout.copy_in(TENSORS, places, buffer)
    return places, buffer


def test_every_kind_of_tensor_comes_back() -> None:
    places, buffer = filled()
    places = layout.read(json.loads(json.dumps(layout.written(places))))
    found = layout.views(places, buffer)
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert found[name].contiguous().view(-1).tolist() == tensor.contiguous().view(-1).tolist()


def test_places_are_aligned_and_apart() -> None:
    places = layout.plan(TENSORS)
    ends = 0
    for place in places:
        assert place.offset % 64 == 0
        assert place.offset >= ends
        ends = place.offset + place.bytes
    assert layout.extent(places) >= ends
    assert layout.extent(()) == 0


@pytest.mark.parametrize("at", range(0, 600, 37))
def test_one_changed_bit_is_seen(at: int) -> None:
    places, buffer = filled()
    places = layout.hashed(places, layout.views(places, buffer))
    layout.check(places, layout.views(places, buffer))
    inside = [place for place in places if place.offset <= at < place.offset + place.bytes]
    buffer[at] ^= 4
    if inside:
        with pytest.raises(CheckpointError, match=inside[0].name):
            layout.check(places, layout.views(places, buffer))
    else:
        layout.check(places, layout.views(places, buffer))


def test_the_hash_of_all_depends_on_each() -> None:
    places, buffer = filled()
    places = layout.hashed(places, layout.views(places, buffer))
    other = (replace(places[0], sha256="0" * 64), *places[1:])
    assert layout.combined(places) != layout.combined(other)
    assert len(layout.combined(places)) == 32


@pytest.mark.parametrize(
    "change",
    [
        {"offset": -64},
        {"offset": 1 << 40},
        {"bytes": 8},
        {"shape": (-1, -5)},
        {"dtype": "nn"},
        {"dtype": "no such"},
    ],
)
def test_impossible_places_are_damaged(change: dict[str, object]) -> None:
    places, buffer = filled()
    with pytest.raises(CheckpointError) as caught:
        layout.views([replace(places[0], **change)], buffer)  # type: ignore[arg-type]
    assert caught.value.code == "Damaged"


@pytest.mark.parametrize("document", [5, [1], [["a", "b"]], [["a", "float32", 3, 0, 0, ""]], None])
def test_another_list_is_damaged(document: object) -> None:
    with pytest.raises(CheckpointError):
        layout.read(document)
