"""Who follows a donor knows which epoch is in use, and a switch without it does not cut it off."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch

from shoal.elastic import wire
from shoal.elastic.errors import Fenced
from shoal.elastic.joining.donor import Donor
from shoal.elastic.joining.join import Applied, Event, Follower, InUse, Snapshot, Switch, _keep_level
from shoal.elastic.membership import Membership
from shoal.elastic.state import digest, pack
from shoal.elastic.view import Cursor, Member, View

SECONDS = 10.0


@pytest.fixture
def donor() -> Iterator[Donor]:
    made = Donor("127.0.0.1", lambda: "key")
    yield made
    made.close()


def follow(donor: Donor) -> Follower:
    """A follower that the donor knows of."""
    follower = Follower(donor.address, "key")
    deadline = time.monotonic() + SECONDS
    while not donor.wanted:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return follower


def serve(donor: Donor, step: int) -> None:
    state = [torch.full((4,), float(step))]
    donor.snapshot(pack({"parameters": state}), step, Cursor(0, step), digest(state))


def events(follower: Follower, count: int) -> list[Event]:
    found = [follower.next(SECONDS) for _ in range(count)]
    assert None not in found
    return cast("list[Event]", found)


def planned(donor: Donor) -> Membership:
    """Of a joiner that is in the planned view 4."""
    membership = Membership("c", "127.0.0.1:1", lambda: None, print)
    membership.incarnation = 3
    membership.plans = {4: View(4, "switch", (Member("a", 1, donor.address), Member("c", 3, "")))}
    return membership


def test_who_is_not_in_the_epoch_goes_on_following(donor: Donor):
    follower = follow(donor)
    serve(donor, 5)
    donor.switched(3, 5, 0)
    donor.applied(6, Cursor(0, 6), pack({"buffers": [], "others": []}))
    first, second, third, fourth = events(follower, 4)
    assert first == InUse(0)
    assert isinstance(second, Snapshot)
    assert third == Switch(3, 5, 0)
    assert isinstance(fourth, Applied)
    assert fourth.step == 6
    follower.close()


def test_a_follower_that_has_gone_is_not_fed(donor: Donor):
    """Else each step after a switch would pay for a joiner that is in, and follows no longer."""
    follower = follow(donor)
    serve(donor, 5)
    assert donor.followed
    follower.close()
    deadline = time.monotonic() + SECONDS
    while donor.followed:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_who_comes_late_begins_anew(donor: Donor):
    """The members have switched to a view with it and wait for it, but it has to begin following again:
    it has no state, and there is no boundary at which it would be given one."""
    donor.switched(4, 9, 0)
    follower = follow(donor)
    with pytest.raises(Fenced):
        _keep_level(cast("Any", None), planned(donor), follower)
    follower.close()


def test_who_was_not_served_before_the_switch_begins_anew(donor: Donor):
    follower = follow(donor)
    donor.switched(4, 9, 0)
    with pytest.raises(Fenced):
        _keep_level(cast("Any", None), planned(donor), follower)
    follower.close()


@pytest.mark.slow
def test_gradients_of_a_few_steps_may_wait_however_large(monkeypatch: pytest.MonkeyPatch):
    """A model whose state and first gradients together are more than the bound can be joined too."""
    monkeypatch.setattr("shoal.elastic.joining.donor.MOST_WAITING_BYTES", 1 << 20)
    for pushed, cut in ((4, False), (12, True)):
        made = Donor("127.0.0.1", lambda: "key")
        sock = socket.create_connection(("127.0.0.1", int(made.address.rsplit(":", 1)[1])))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.Connection(sock).send({"type": "hello", "role": "joiner", "key": "key"})
        deadline = time.monotonic() + SECONDS
        while not made.wanted:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        state = [torch.zeros(8 << 20)]
        made.snapshot(pack({"parameters": state}), 1, Cursor(0, 1), 0)
        for _ in range(pushed):  # which it does not read
            made.update(0, [{}], pack([torch.zeros(4 << 20)]))
        assert made.followed is not cut
        sock.close()
        made.close()


def test_what_follows_a_description_comes_aligned(donor: Donor):
    follower = follow(donor)
    donor.snapshot(pack({"parameters": [torch.arange(7)]}), 3, Cursor(0, 3), 0)
    _, snapshot = events(follower, 2)
    assert isinstance(snapshot, Snapshot)
    (tensor,) = snapshot.tree["parameters"]
    assert tensor.tolist() == list(range(7))
    assert tensor.data_ptr() % 8 == 0
    follower.close()
