"""Many buckets through one codec: order, failures, and codecs by name."""

from __future__ import annotations

import pytest
import torch

from shoal.elastic.codecs import Bucket, make
from shoal.elastic.codecs.base import Exchanges
from shoal.elastic.codecs.catalogue import NAMES
from tests.elastic.codecs.together import gradients

SHAPES: list[tuple[int, ...]] = [(24, 30), (24,)]
EVERY = ["none", "bf16", "bf16+ef", "fp16", "fp16+ef", "powersgd:1", "powersgd:4"]


class Wire:
    """One rank's: sums are of one; it notes the order, and breaks where it is told to."""

    def __init__(self, broken_at: int = -1) -> None:
        self.log: list[str] = []
        self._sent: list[torch.Tensor] = []
        self._broken_at = broken_at

    def launch(self, tensor: torch.Tensor) -> int:
        self._sent.append(tensor)
        self.log.append(f"launch {len(self._sent) - 1}")
        return len(self._sent) - 1

    def wait(self, number: int) -> None:
        self.log.append(f"wait {number}")
        if number == self._broken_at:
            raise ConnectionError("a peer is gone")


def buckets(seed: int = 0) -> list[Bucket]:
    return [Bucket(n, gradients(1, SHAPES, seed + n)[0], tuple(SHAPES)) for n in range(3)]


def test_later_rounds_follow_in_lockstep() -> None:
    wire = Wire()
    exchanges = Exchanges(make("powersgd:1"), wire.launch, wire.wait)
    for bucket in buckets():
        exchanges.begin(bucket)
    assert wire.log == ["launch 0", "launch 1", "launch 2"]
    assert list(exchanges.finish()) == [0, 1, 2]
    first = [word for n in range(3) for word in (f"wait {n}", f"launch {n + 3}")]
    assert wire.log[3:] == [*first, "wait 3", "wait 4", "wait 5"]


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_the_sum_of_one_is_about_itself(name: str) -> None:
    """Repeating one gradient, the mean of what is decoded comes to it: nothing systematic is lost."""
    codec, wire = make(name), Wire()
    assert codec.name == name
    got = torch.zeros(744)
    for _ in range(60):
        exchanges = Exchanges(codec, wire.launch, wire.wait)
        bucket = buckets()[1]
        truth = bucket.flat.clone()
        exchanges.begin(bucket)
        assert list(exchanges.finish()) == [1]
        codec.commit()
        got += bucket.flat / 60
    assert float((got - truth).norm() / truth.norm()) < 0.35


@pytest.mark.parametrize("name", EVERY)
def test_after_a_failure_and_a_new_view_it_goes_on(name: str) -> None:
    """The bucket whose sum failed is not there, and one that needs another round never will be."""
    came = [] if name.startswith("powersgd") else [2]
    codec, wire = make(name), Wire(broken_at=1)
    exchanges = Exchanges(codec, wire.launch, wire.wait)
    for bucket in buckets():
        exchanges.begin(bucket)
    with pytest.raises(ConnectionError):
        list(exchanges.finish())
    assert exchanges.abandon(ConnectionError) == came
    codec.rollback()
    codec.view_changed(2)
    wire = Wire()
    exchanges = Exchanges(codec, wire.launch, wire.wait)
    for bucket in buckets():
        exchanges.begin(bucket)
    assert list(exchanges.finish()) == [0, 1, 2]
    codec.commit()


def test_a_codec_that_there_is_not_is_named_with_those_that_there_are() -> None:
    for name in ("zip", "powersgd", "powersgd:0", "powersgd:x", "bf16+"):
        with pytest.raises(ValueError, match=r"no codec .*powersgd:RANK") as caught:
            make(name)
        assert all(each in str(caught.value) for each in NAMES)
