"""Homes that several tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from shoal.objects.kinds import Kind
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.testing.local import nodes
from shoal.testing.plane import capacity
from tests.scenarios.fields import unwritten
from tests.scenarios.simulated import Simulated
from tests.scenarios.standing import Bystander, Standing


@pytest.fixture(scope="package")
def field_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """Two nodes: `plain` has 4 cores, `gold` has 2, two devices that CUDA would know, and a label."""
    declared = nodes(
        plain={"cpu": CpuMillis(4000), "memory": Bytes(2 << 30)},
        gold={"gpus": ("GPU-a", "GPU-b"), "labels": {"disk": "ssd"}},
    )
    with Standing(tmp_path_factory.mktemp("fields") / "home", declared) as standing:
        yield standing


@pytest.fixture
def cluster(field_home: Standing, request: pytest.FixtureRequest) -> Iterator[Standing]:
    """`field_home` with nothing of other tests in it. What the test claims to show it has written: each
    run of a test with parameters some of it, any other test all."""
    field_home.begin()
    yield field_home
    field_home.clear()
    check_claims(request, field_home.written)


@pytest.fixture
def simulated(request: pytest.FixtureRequest) -> Iterator[Simulated]:
    """The nodes of `field_home` in virtual time; claims are checked as `cluster` does."""
    devices = msgspec.structs.replace(capacity(2, 1), gpus=("GPU-a", "GPU-b"))
    home = Simulated({"plain": (capacity(4, 2), {}), "gold": (devices, {"disk": "ssd"})})
    yield home
    check_claims(request, home.written)


def check_claims(request: pytest.FixtureRequest, written: list[tuple[Kind, Any]]) -> None:
    """Fail if the test shows a field that it never wrote."""
    claims = getattr(request.function, "shows", ())
    missing = unwritten(claims, written)
    allowed = max(0, len(claims) - 1) if hasattr(request.node, "callspec") else 0
    assert len(missing) <= allowed, f"the test shows fields that it never wrote: {missing}"


@pytest.fixture(scope="module")
def guarded_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Standing, Bystander]]:
    """Two nodes, and a job on the first that nothing may hurt."""
    size = {"cpu": CpuMillis(4000), "memory": Bytes(2 << 30)}
    declared = nodes(one=size, two=size)
    with Standing(tmp_path_factory.mktemp("guarded") / "home", declared) as standing:
        yield standing, Bystander(standing)


@pytest.fixture
def guarded(guarded_home: tuple[Standing, Bystander]) -> Iterator[Standing]:
    """A home for what is wrong or hostile. When the test ends the bystander runs as before, and server
    and agents are the processes that they were."""
    standing, bystander = guarded_home
    components = [standing.local.pid(name) for name in ("server", "one", "two")]
    yield standing
    bystander.check()
    assert [standing.local.pid(name) for name in ("server", "one", "two")] == components
    standing.clear()
