"""Whole clusters in virtual time: joining, leaving, dying, coming back; load and false alarms."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from shoal.elastic.detect.swim.node import Join
from shoal.elastic.detect.swim.settings import Settings
from shoal.elastic.detect.swim.transport import Keys
from tests.elastic.detect.swim.network import Host, Network, leave

FAST = Settings(probe_interval=0.1, probe_timeout=0.05, push_pull_interval=1.0, stream_timeout=1.0)


def test_sixteen_members_see_each_other_within_250_ms() -> None:
    """training-C6: 16 members, probe and gossip 20 ms, push/pull 200 ms."""
    settings = Settings(
        probe_interval=0.02, probe_timeout=0.01, gossip_interval=0.02, push_pull_interval=0.2
    )
    for seed in range(5):
        network = Network(seed, settings)
        hosts = [network.add(f"m{at}") for at in range(16)]
        for host in hosts[1:]:
            network.give(host, Join((hosts[0].address,)))
        assert network.until(
            lambda hosts=hosts: all(len(each.node.members) == 16 for each in hosts), 0.25
        )
        print(f"all see all after {network.now * 1000:.0f} ms")


def test_to_join_whom_nobody_reaches() -> None:
    """training-C5 (join dead): one is gone, one takes the call and never answers: it is said."""
    network = Network(1, FAST)
    one, two = network.add("m0"), network.add("m1")
    network.pause(two, 60.0)
    network.give(one, Join((two.address, "10.9.9.9:1")))
    network.run(FAST.stream_timeout + 0.01)
    assert sorted((change.kind, change.address) for _, change in one.changes) == [
        ("unreached", two.address), ("unreached", "10.9.9.9:1"),
    ]  # fmt: skip
    assert len(one.node.members) == 1


def test_a_join_that_is_not_admitted() -> None:
    """training-C5 (join cancel): who does not admit a stranger does not come to know it either."""
    network = Network(1, FAST)
    one = network.add("m0", admit=_own)
    two = network.add("stranger")
    network.give(two, Join((one.address,)))
    network.run(5.0)
    assert [change.kind for _, change in two.changes] == ["unreached"]
    network.give(one, Join((two.address,)))
    network.run(5.0)
    assert len(one.node.members) == 1
    assert [change.kind for _, change in one.changes] == ["unreached"]


def test_a_member_that_leaves_is_not_called_dead() -> None:
    """training-C5 (leave): every other sees it leave, nobody suspects it."""
    network = Network(1, FAST)
    one, *others = network.cluster(8)
    leave(network, one)
    network.run(5.0)
    assert all([change.kind for _, change in host.changes] == ["left"] for host in others)


@pytest.mark.slow
@pytest.mark.parametrize(("passed", "reached"), [(1.0, True), (6.0, False)])
def test_the_dead_get_gossip_within_the_window_only(passed: float, reached: bool) -> None:
    """training-C5 (gossip to dead): news goes to a member that died less than 5 s ago, not later."""
    network = Network(1, replace(FAST, gossip_to_dead=5.0))
    one, *others = network.cluster(8)
    network.kill(one)
    assert network.until(lambda: all(host.state("m0") == "dead" for host in others), 5.0)
    network.run(passed)
    before = network.sent_to["m0"]
    network.give(network.add("new"), Join((others[0].address,)))
    network.run(3.0)
    assert all(host.state("new") == "alive" for host in others)
    assert (network.sent_to["m0"] > before) == reached


@pytest.mark.slow
def test_the_dead_are_forgotten_after_the_window() -> None:
    """training-C5: and may come back as strangers."""
    network = Network(1, replace(FAST, gossip_to_dead=5.0))
    one, *others = network.cluster(8)
    network.pause(one, 20.0)
    network.run(15.0)
    assert {host.state("m0") for host in others} == {None}
    network.run(6.0)
    network.give(one, Join((others[0].address,)))
    network.run(5.0)
    assert {host.state("m0") for host in others} == {"alive"}


@pytest.mark.slow
def test_two_halves_that_were_cut_from_each_other_find_together() -> None:
    """training-C5 (push/pull): each half buried the other; exchanges with the dead are enough."""
    for seed in range(5):
        network = Network(seed, FAST)
        hosts = network.cluster(10)
        pairs = {(a.name, b.name) for a in hosts[:5] for b in hosts[5:]}
        network.cut = pairs | {(b, a) for a, b in pairs}
        assert network.until(lambda h=hosts: all(len(host.node.members) == 5 for host in h), 20.0)
        network.cut = set()
        began = network.now
        assert network.until(lambda h=hosts: all(len(host.node.members) == 10 for host in h), 20.0)
        print(f"whole again after {network.now - began:.1f} s")


@pytest.mark.slow
def test_the_key_is_changed_without_a_gap() -> None:
    """training-C5 (transition of keys): accept both, seal with the new, drop the old: no suspicion."""
    network = Network(1, FAST, key="old")
    hosts = network.cluster(8)
    for keys in (Keys("old", "new"), Keys("new", "old"), Keys("new")):
        for host in hosts:
            host.keys = keys
            network.run(0.3)
    network.run(3.0)
    assert network.counted["sealed wrongly"] == 0
    assert not [change for host in hosts for _, change in host.changes]
    hosts[0].keys = Keys("another job's")
    network.run(5.0)
    assert network.counted["sealed wrongly"] > 0
    assert all(host.state("m0") == "dead" for host in hosts[1:])


@pytest.mark.slow
def test_a_process_that_was_stopped_blames_nobody() -> None:
    """Lifeguard: who sleeps for 3 s wakes with all timers overdue; it buries nobody, and refutes."""
    network = Network(4, FAST)
    one, *others = network.cluster(8)
    network.pause(one, 3.0)
    network.run(2.9)
    assert all(host.state("m0") == "dead" for host in others)
    network.run(5.0)
    assert not [change for _, change in one.changes if change.kind in ("suspect", "dead")]
    assert all(host.state("m0") == "alive" for host in others)
    known = one.node.members.get("m0")
    assert known is not None
    assert known.incarnation >= 2


@pytest.mark.slow
def test_slow_members_do_not_have_sound_ones_declared_dead() -> None:
    """5 of 16 take in what comes up to 1 s late, for 8 s: nobody sound is buried; by plain SWIM, many.

    What the slow ones are called is no false alarm: they do not answer within any interval.
    """
    plain = replace(FAST, awareness_max=1, suspicion_max_mult=1.0, nacks=False)
    buried = {
        name: _buried(each, 1.0)["sound"] for name, each in (("lifeguard", FAST), ("plain", plain))
    }
    print(f"sound members declared dead: {buried}")
    assert buried["lifeguard"] == 0
    assert buried["plain"] > 5


@pytest.mark.slow
def test_a_tenth_of_all_datagrams_lost_buries_nobody() -> None:
    """16 members, 10 % loss, 10 s."""
    network = Network(5, FAST, loss=0.1)
    hosts = network.cluster(16)
    network.run(10.0)
    assert not [change for host in hosts for _, change in host.changes if change.kind == "dead"]


@pytest.mark.slow
def test_the_load_of_a_member_does_not_grow_with_their_number() -> None:
    """Datagrams and bytes a second of one member among 12, 36 and 72, with nothing happening."""
    loads: list[float] = []
    for count in (12, 36, 72):
        network = Network(6, replace(Settings(), push_pull_interval=0))
        hosts = network.cluster(count)
        network.run(2.0)
        sent, size, began = _sent(hosts), sum(host.sent_bytes for host in hosts), network.now
        network.run(2.0)
        seconds = (network.now - began) * count
        loads.append((_sent(hosts) - sent) / seconds)
        rate = (sum(host.sent_bytes for host in hosts) - size) / seconds
        print(f"{count} members: {loads[-1]:.1f} datagrams, {rate:.0f} bytes a second and member")
    assert max(loads) / min(loads) < 1.15
    assert max(loads) < 12  # a ping and an ack for each of five probes a second


@pytest.mark.slow
def test_a_dead_member_among_64_is_known_to_all_in_seconds() -> None:
    """Found, confirmed, declared and spread: with intervals of 0.2 s."""
    network = Network(7, replace(Settings(), push_pull_interval=0))
    hosts = network.cluster(64)
    network.kill(hosts[7])
    began = network.now
    rest = [host for host in hosts if host.up]
    while not all(host.state("m7") == "dead" for host in rest):
        network.run(0.02)
        assert network.now - began < 6.0
    print(f"the last of 63 knows after {network.now - began:.2f} s")


def _own(name: str, _address: str) -> bool:
    return name.startswith("m")


def _sent(hosts: list[Host]) -> int:
    return sum(host.sent for host in hosts)


def _buried(settings: Settings, lag: float) -> Counter[str]:
    """How often whom was declared dead, the slow ones and the sound ones apart."""
    network = Network(8, replace(settings, push_pull_interval=0))
    hosts = network.cluster(16)
    for host in hosts[:5]:
        host.lag = lag
    network.run(8.0)
    slow = {host.name for host in hosts[:5]}
    return Counter(
        "slow" if change.name in slow else "sound"
        for host in hosts for _, change in host.changes if change.kind == "dead"
    )  # fmt: skip
