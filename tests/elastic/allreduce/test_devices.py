"""All ranks come to the same backend, from the same claims; what cannot be is said in a sentence."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal.elastic.allreduce import devices
from shoal.elastic.allreduce.layout import plan
from shoal.elastic.errors import ElasticError
from tests.elastic.gpu.devices import NEEDS_GPU

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("claims", "nccl"),
    [
        (["GPU-1", "GPU-2"], True),
        (["GPU-1"], True),
        (["GPU-1", "GPU-1"], False),
        (["GPU-1", "", "GPU-2"], False),
        (["", ""], False),
    ],
)
def test_nccl_needs_a_device_for_each_rank(claims: list[str], nccl: bool):
    assert devices.over_nccl(claims) is nccl


@pytest.mark.slow
@given(st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=1), st.randoms())
def test_the_order_of_ranks_does_not_matter(claims: list[str], order):
    other = list(claims)
    order.shuffle(other)
    assert devices.over_nccl(claims) == devices.over_nccl(other)


def test_a_rank_on_the_cpu_claims_nothing():
    assert devices.claim(CPU, "auto") == devices.claim(CPU, "gloo") == ""


def test_nccl_on_the_cpu_is_an_error():
    with pytest.raises(ElasticError, match="the parameters are on cpu"):
        devices.claim(CPU, "nccl")


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=NEEDS_GPU)])
def test_a_gpu_is_claimed_by_its_name_in_the_world(device: str):
    claim = devices.claim(torch.device(device, torch.cuda.current_device()), "auto")
    assert len(claim) > 10
    assert len(claim.encode()) < 256
    assert devices.claim(torch.device(device), "gloo") == ""


def test_the_environment_chooses():
    assert devices.wanted({}) == "auto"
    assert devices.wanted({"SHOAL_ELASTIC_BACKEND": ""}) == "auto"
    assert devices.wanted({"SHOAL_ELASTIC_BACKEND": "gloo"}) == "gloo"
    with pytest.raises(ElasticError, match="auto, gloo, nccl, not 'mpi'"):
        devices.claim(CPU, devices.wanted({"SHOAL_ELASTIC_BACKEND": "mpi"}))


def test_a_model_on_two_devices_is_an_error():
    spread = [torch.zeros(3), torch.zeros(3, device="meta")]
    with pytest.raises(ElasticError, match="on cpu and meta"):
        plan(spread, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_control_vector_is_where_the_parameters_are(dtype: torch.dtype):
    """It rides with the last bucket, or lies by itself."""
    layout = plan([torch.zeros(3, device="meta", dtype=dtype)], 4)
    assert layout.device.type == layout.control.device.type == "meta"
    assert layout.control_rides is (dtype == torch.float32)
