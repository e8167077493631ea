"""Probes, direct and indirect, and what follows from their failing, in virtual time."""

from __future__ import annotations

import random

import pytest

from shoal.elastic.detect.swim.members import Awareness, Gossip, Members
from shoal.elastic.detect.swim.messages import Alive, Suspect, encode, packet
from shoal.elastic.detect.swim.node import Datagram
from shoal.elastic.detect.swim.settings import Settings
from tests.elastic.detect.swim.network import Host, Network

FAST = Settings(probe_interval=0.1, probe_timeout=0.05, suspicion_mult=5, push_pull_interval=0)


def tell(network: Network, host: Host, *messages: Alive | Suspect) -> None:
    """News for one member, as if gossip had brought it."""
    network.give(host, Datagram("10.9.9.9:1", packet([encode(each) for each in messages])))


@pytest.mark.slow
def test_a_member_cut_off_from_one_is_reached_through_another() -> None:
    """training-C1: the direct probe is lost, but another reaches the target: nobody is suspected."""
    network = Network(1, FAST)
    one, two, *others = network.cluster(6)
    network.cut = {("m0", "m1"), ("m1", "m0")}
    network.run(5.0)
    assert one.node.awareness.score == two.node.awareness.score == 0
    assert not [change for host in (one, two, *others) for _, change in host.changes]


@pytest.mark.slow
def test_a_dead_member_is_suspected_and_declared_dead() -> None:
    """training-C1: suspected after about 1.6 intervals by the first to probe it, then dead."""
    delays: list[float] = []
    for seed in range(20):
        network = Network(seed, FAST)
        hosts = network.cluster(6)
        killed_at = network.now
        network.kill(hosts[0])
        rest = hosts[1:]
        assert network.until(lambda rest=rest: all(host.said("suspect", "m0") for host in rest), 3.0)
        delays.append(min(at for host in rest for at in host.said("suspect", "m0")) - killed_at)
        assert network.until(lambda rest=rest: all(host.state("m0") == "dead" for host in rest), 3.0)
        assert network.now - killed_at < 2.0
    mean = sum(delays) / len(delays)
    print(f"suspected after {mean * 1000:.0f} ms in the mean, {max(delays) * 1000:.0f} at most")
    assert mean < 3 * FAST.probe_interval


@pytest.mark.parametrize(
    ("count", "confirmations", "seconds"),
    [(6, 0, 1.0), (6, 1, 0.75), (6, 2, 0.604), (6, 3, 0.5), (4, 0, 0.5), (3, 0, 0.5)],
)
def test_how_long_it_takes_to_be_dead(count: int, confirmations: int, seconds: float) -> None:
    """training-C1 (dogpile): probe 100 ms, mult 5, max mult 2, k = 3, among 6; among 4 always 500 ms."""
    members = table(count)
    members.suspect(Suspect(1, "m1", "m0"), 10.0)
    for at in range(confirmations):
        members.suspect(Suspect(1, "m1", f"m{at + 2}"), 10.0 + at / 100)
        members.suspect(Suspect(1, "m1", f"m{at + 2}"), 10.0 + at / 100)
    assert members.expires_at - 10.0 == pytest.approx(seconds, abs=0.001)
    members.expire(10.0 + seconds - 0.025)
    assert states(members)["m1"] == "suspect"
    members.expire(10.0 + seconds + 0.025)
    members.expire(10.0 + seconds + 5.0)
    assert states(members)["m1"] == "dead"
    assert [change.kind for change in members.changes if change.name == "m1"] == ["suspect", "dead"]


def test_an_overdue_suspicion_ends_at_once() -> None:
    """training-C1b: confirmations that come when the shortened time is past declare it dead at once."""
    network = Network(1, FAST)
    hosts = network.cluster(6)
    one = hosts[0]
    network.kill(hosts[5])
    for host in hosts[1:5]:  # the one that is watched hears nothing but what the test says
        network.cut |= {(host.name, one.name), (one.name, host.name)}
    tell(network, one, Suspect(1, "m5", "m0"))
    network.run(0.9)
    assert one.state("m5") == "suspect"
    tell(network, one, *(Suspect(1, "m5", f"m{at}") for at in (1, 2, 3)))
    network.run(0.001)
    assert one.state("m5") == "dead"


def test_a_suspected_member_hears_it_from_who_probes_it() -> None:
    """training-C1 (buddy): the ping of a suspected member carries the suspicion, and it refutes."""
    network = Network(
        3, Settings(probe_interval=0.1, probe_timeout=0.05, gossip_members=0, push_pull_interval=0)
    )
    one, two = network.cluster(2)
    tell(network, one, Suspect(1, "m1", "m9"))
    assert one.state("m1") == "suspect"
    assert network.until(lambda: one.state("m1") == "alive", 0.4)
    known = one.node.members.get("m1")
    assert known is not None
    assert known.incarnation == 2
    assert two.node.members.get("m1") is not None
    network.run(3.0)
    assert one.state("m1") == "alive"
    assert [change.kind for _, change in one.changes] == ["suspect", "alive"]


@pytest.mark.parametrize(
    ("streams", "option", "state"),
    [(True, True, "alive"), (False, True, "suspect"), (True, False, "suspect")],
)
def test_a_member_whose_datagrams_are_lost(streams: bool, option: bool, state: str) -> None:
    """training-C2: UDP closed: alive by TCP; suspect without TCP, or with the option off."""
    settings = Settings(
        probe_interval=0.1, probe_timeout=0.05, stream_probe=option, push_pull_interval=0
    )
    network = Network(1, settings)
    one, two = network.cluster(2)
    two.datagrams = False
    two.streams = streams
    assert network.until(lambda: one.node.probing == "m1", 1.0)
    network.run(0.1)
    network.run(0.02)
    assert one.state("m1") == state
    if state == "alive":
        network.run(5.0)
        assert one.state("m1") == "alive"
        assert not one.changes


def test_the_score_bounds_and_scales() -> None:
    """training-C3: 0 to 7 with a maximum of 8, and a time is multiplied by score + 1."""
    awareness = Awareness(8)
    assert awareness.scale(1.5) == 1.5
    awareness.apply(-1)
    assert awareness.score == 0
    awareness.apply(3)
    assert awareness.scale(0.5) == 2.0
    awareness.apply(100)
    assert awareness.score == 7
    assert awareness.scale(1.0) == 8.0


def test_nacks_speak_for_the_prober() -> None:
    """training-C3: score 1, all of those asked say nack: twice the interval, and the score stays."""
    network = Network(2, FAST)
    hosts = network.cluster(6)
    one = hosts[0]
    probing(network, one, "m5", score=1)
    network.kill(hosts[5])
    began = network.now
    assert network.until(lambda: one.node.probing != "m5", 1.0)
    assert network.now - began == pytest.approx(0.2, abs=0.005)
    assert one.node.awareness.score == 1
    assert one.state("m5") == "suspect"
    probing(network, one, "m1", score=1)
    assert network.until(lambda: one.node.probing != "m1", 1.0)
    assert one.node.awareness.score == 0


def test_missed_nacks_speak_against_the_prober() -> None:
    """training-C3: two of those asked are as silent as the target: the score rises by two."""
    network = Network(2, FAST)
    hosts = network.cluster(5)
    one = hosts[0]
    probing(network, one, "m4", score=0)
    for host in hosts[2:]:
        network.kill(host)
    assert network.until(lambda: one.node.probing != "m4", 1.0)
    assert one.node.awareness.score == 2


def probing(network: Network, host: Host, name: str, score: int) -> None:
    """Run until it has just begun to probe that one, with that score."""

    def begun() -> bool:
        if host.node.probing == name:
            return True
        host.node.awareness.score = score
        return False

    network.until(lambda: host.node.probing is None, 1.0)
    assert network.until(begun, 20.0)


def table(count: int) -> Members:
    """The table of m0 among so many."""
    settings = Settings(probe_interval=0.1, suspicion_mult=5)
    me = Alive(1, "m0", "10.0.0.0:1")
    members = Members(me, settings, Gossip(), Awareness(8), random.Random(1))
    for at in range(1, count):
        members.alive(Alive(1, f"m{at}", f"10.0.0.{at}:1"), 0.0)
    members.changes.clear()
    return members


def states(members: Members) -> dict[str, str]:
    """Of each by name."""
    return {each.name: each.state for each in members}
