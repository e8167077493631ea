"""Groups of one epoch: built over claims, rebuilt per epoch, and nobody hangs in a broken one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch

from shoal.elastic.allreduce.group import Group
from shoal.elastic.allreduce.groups import Groups
from shoal.elastic.allreduce.nccl import Bootstrap, OnStream
from shoal.elastic.allreduce.relay import RelayStore
from shoal.elastic.errors import ElasticError, GroupFailed
from shoal.elastic.view import Member, View
from tests.elastic.allreduce.team import groups, together
from tests.elastic.gpu.devices import DEVICES, NEEDS_GPU

pytestmark = pytest.mark.slow


def close(built: list[Group]) -> None:
    for group in built:
        group.close()


def all_of(built: list[Group], call: Callable[[Group], object]) -> list[object]:
    return together([lambda group=group: call(group) for group in built])


class Ending:
    """An operation that ends in the moment in which a first wait for it is given up."""

    def __init__(self, error: str | None) -> None:
        self._error = error
        self._waits = 0

    def wait(self, timeout: timedelta = timedelta(days=1)) -> bool:
        self._waits += 1
        if self._waits == 1:
            raise RuntimeError("Operation timed out!")
        if self._error is not None:
            raise RuntimeError(self._error)
        return True

    def is_completed(self) -> bool:
        return self._waits > 0


def test_an_operation_that_ends_as_a_wait_is_given_up_has_not_failed():
    group = Group(View(1, "first", (Member("a", 1, "here"),)), 0, None, None)
    group.wait(Ending(None))
    assert not group.failed
    with pytest.raises(GroupFailed, match="closed by peer"):
        group.wait(Ending("closed by peer"))
    assert group.failed


@pytest.mark.parametrize("device", DEVICES)
def test_ranks_that_share_a_device_add_up_over_gloo(device: str):
    built = groups(2)
    assert not any(group.over_nccl for group in built)
    mine = [torch.full((1000,), float(group.rank + 1), device=device) for group in built]

    def add(group: Group) -> None:
        group.wait(group.sum(mine[group.rank]))
        if device == "cuda":
            torch.cuda.synchronize()

    all_of(built, add)
    assert all(bool((each == 3.0).all()) for each in mine)
    close(built)


@pytest.mark.parametrize("device", DEVICES)
def test_what_comes_after_the_wait_sees_the_sum(device: str):
    """On a GPU the stream that waits is behind the sum, without asking the host to wait for it."""
    built = groups(2)

    def many(group: Group) -> float:
        total = 0.0
        for turn in range(20):
            mine = torch.full((50_000,), float(turn), device=device)
            group.wait(group.sum(mine))
            total += float((mine - 2.0 * turn).abs().max())
        return total

    assert all_of(built, many) == [0.0, 0.0]
    close(built)


@pytest.mark.parametrize("device", DEVICES)
def test_values_of_one_rank_and_of_all(device: str):
    built = groups(3)

    def share(group: Group) -> list[list[int]]:
        mine = torch.tensor([group.rank, 7], device=device)
        found = [each.tolist() for each in group.gather(mine)]
        given = torch.full((5,), group.rank, device=device)
        group.broadcast(given, 2)
        return [*found, given.tolist()]

    assert all_of(built, share) == [[[0, 7], [1, 7], [2, 7], [2] * 5]] * 3
    close(built)


@pytest.mark.parametrize("device", DEVICES)
def test_nobody_hangs_in_a_broken_group(device: str):
    """A rank never comes: the others are woken by an interrupt."""
    built = groups(3)
    woken: list[float] = []

    def waits(group: Group) -> None:
        mine = torch.ones(1 << 18, device=device)
        pending = group.sum(mine)
        with pytest.raises(GroupFailed):
            group.wait(pending)
        woken.append(time.monotonic())
        with pytest.raises(GroupFailed):
            group.sum(mine)

    threads = [threading.Thread(target=waits, args=(group,), daemon=True) for group in built[:2]]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    assert not woken
    began = time.monotonic()
    built[0].interrupt()
    for thread in threads:
        thread.join(10.0)
    assert len(woken) == 2
    print(f"woken after {(max(woken) - began) * 1000:.0f} ms")
    close(built)


@pytest.mark.parametrize("device", DEVICES)
def test_groups_follow_one_another(device: str):
    """Nothing of an epoch is met in the next."""
    for epoch in range(1, 6):
        built = groups(2, epoch)
        mine = [torch.full((10,), float(epoch), device=device) for _ in built]
        all_of(built, lambda group, mine=mine: group.wait(group.sum(mine[group.rank])))
        assert [each.tolist() for each in mine] == [[2.0 * epoch] * 10] * 2
        if epoch % 2:
            built[0].interrupt()
        close(built)


@pytest.mark.parametrize("device", DEVICES)
def test_one_rank_is_a_group(device: str):
    view = View(4, "first", (Member("a", 1, ""),))
    builder = Groups("127.0.0.1", lambda: ("a", 1), lambda message: True)
    builder.train_on(torch.device(device, 0) if device == "cuda" else torch.device(device))
    builder.want(view)
    group = builder.take(4, 5.0)
    assert group is not None
    mine = torch.ones(3, device=device)
    group.wait(group.sum(mine))
    assert mine.tolist() == [1.0] * 3
    assert [each.tolist() for each in group.gather(mine)] == [[1.0] * 3]
    group.close()
    builder.close()


def test_claims_come_with_the_addresses():
    stores = [RelayStore(rank, lambda blob: None, claim) for rank, claim in enumerate(["GPU-1", ""])]
    posted: dict[int, bytes] = {}
    for rank, store in enumerate(stores):
        store._post = lambda blob, rank=rank: posted.__setitem__(rank, blob)
        store.set(f"0/{rank}", f"address of {rank}")
    stores[0].put(1, posted[1])
    stores[1].put(0, posted[0])
    assert [store.claims() for store in stores] == [["GPU-1", ""]] * 2
    assert stores[0].get("0/1") == b"address of 1"
    assert stores[1].peers() == {0: b"address of 0"}


def test_a_wrong_backend_is_said_before_the_first_view(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHOAL_ELASTIC_BACKEND", "nccl")
    builder = Groups("127.0.0.1", lambda: ("a", 1), lambda message: True)
    with pytest.raises(ElasticError, match="NCCL is asked for"):
        builder.train_on(torch.device("cpu"))
    builder.train_on(torch.device("cpu"), "gloo")


def test_a_communicators_id_is_told_over_gloo():
    """What rank 0 sets, the others get; keys of their own they keep."""
    built = groups(3)

    def tell(group: Group) -> list[bytes]:
        assert group._backend is not None
        store = Bootstrap(group._backend, group.rank)
        if group.rank == 0:
            store.set("0", bytes(range(128)))
            store.set("more", "x")
            return [store.get("0"), store.get("more")]
        assert not store.check(["0"])
        store.set("own", "mine")
        return [store.get("0"), store.get("more")]

    assert all_of(built, tell) == [[bytes(range(128)), b"x"]] * 3
    close(built)


def test_waiting_on_a_device_ends_when_the_time_is_up_or_it_was_aborted():
    """The host's wait, over the operations of a gloo group: they are of the same kind."""
    built = groups(2)
    aborted = False
    mine = [torch.ones(10), torch.ones(10)]
    assert built[0]._backend is not None and built[1]._backend is not None
    first = OnStream(built[0]._backend.allreduce([mine[0]]), lambda: aborted)
    with pytest.raises(RuntimeError, match="still under way"):
        first.wait(timedelta(milliseconds=50))
    assert not first.is_completed()
    second = OnStream(built[1]._backend.allreduce([mine[1]]), lambda: aborted)
    assert second.wait(timedelta(seconds=10)) and first.wait(timedelta(seconds=10))
    assert mine[0].tolist() == [2.0] * 10
    aborted = True
    with pytest.raises(RuntimeError, match="aborted"):
        first.wait(timedelta(seconds=10))
    close(built)


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=NEEDS_GPU)])
def test_nccl_groups_of_one_are_rebuilt_for_each_epoch(device: str):
    """All that one GPU allows of NCCL: connecting over gloo's group, adding up, and both ways to end."""
    from shoal.elastic.allreduce import nccl
    from shoal.elastic.allreduce.groups import gloo

    for name, value in nccl.SETTINGS.items():
        pytest.MonkeyPatch().setenv(name, value)
    for epoch in range(1, 5):
        view = View(epoch, "first", (Member("a", 1, ""),))
        store = RelayStore(0, lambda blob: None, "GPU")
        backend = gloo("127.0.0.1", store, 0, 1, timedelta(seconds=5))
        made = nccl.connect(backend, 0, 1, torch.device(device, 0))
        group = Group(view, 0, backend, store, made)
        assert group.over_nccl
        mine = torch.full((1 << 20,), 3.0, device=device)
        group.wait(group.sum(mine))
        assert bool((mine == 3.0).all())
        group.broadcast(mine, 0)
        assert group.gather(torch.tensor([5]))[0].tolist() == [5]
        if epoch % 2:
            group.interrupt()
            with pytest.raises(GroupFailed):
                group.sum(mine)
        group.close()
        made.join(10.0)
        assert not made.lives
