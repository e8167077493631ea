"""Who beats and who is watched by others, in virtual time: the limit, and what an accusation does."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.elastic.coordinator import events, messages

from .bench import Bench

NAMES = tuple("abcdef")


class Watched(Bench):
    """A job of six above a limit of four, where each sidecar does what it is told, at once."""

    def __init__(self, *names: str, **settings: Any) -> None:
        super().__init__(minimum=1, expect=len(names), **{"star_limit": 4, **settings})
        self.gossiping: set[str] = set()
        self.heed = True
        self.mute: set[str] = set()
        self.join(*names)
        self.recovered(self.epoch, 0, *names)

    def do(self, event: events.Event) -> None:
        super().do(event)
        while self.asked(clear=False) and self.heed:
            for name, message in self.asked():
                if name in self.mute:
                    continue
                if message["type"] == "star":
                    self.gossiping.discard(name)
                elif message["type"] == "answer":
                    self.gossips(name)
                elif name not in self.gossiping:
                    self.gossiping.add(name)
                    self.gossips(name)

    def asked(self, clear: bool = True) -> list[tuple[str, dict[str, Any]]]:
        """What sidecars were told, by the names of their workers."""
        found: list[tuple[str, dict[str, Any]]] = []
        for name, number in self.sidecars.items():
            told = self.told.get(f"?{number}", [])
            found += [(name, message) for message in told]
            if clear:
                told.clear()
        return found

    def gossips(self, name: str, members: int | None = None) -> None:
        count = len(self.gossiping) if members is None else members
        self.do(events.Gossips(self.sidecars[name], f"s-{name}", f"{name}:7", count, 5.0))

    def all_know_all(self) -> None:
        for name in sorted(self.gossiping):
            self.gossips(name)

    def accuses(self, name: str, other: str, sidecar: str | None = None) -> None:
        word = sidecar or f"s-{other}"
        self.do(events.Silent(self.sidecars[name], self.incarnations[other], word))

    def pass_time(self, seconds: float, silent: tuple[str, ...] = ()) -> None:
        """Who gossips among others does not beat, but says so every 5 s."""
        until = self.now + seconds
        self.mute = set(silent)
        while self.now < until - 1e-9:
            for name in self.gossiping:
                if name not in silent and round(self.now * 20) % 100 == 0:
                    self.gossips(name)
            super().pass_time(0.05, (*silent, *self.gossiping))

    def mode(self) -> set[str]:
        peers = self.state.peers.values()
        return {peer.name for peer in peers if peer.watched}


@pytest.fixture
def six() -> Watched:
    bench = Watched(*NAMES)
    bench.all_know_all()
    return bench


def test_up_to_the_limit_all_beat() -> None:
    bench = Watched(*NAMES[:4])
    assert not bench.gossiping
    bench.pass_time(1.0, silent=("d",))
    assert bench.members == ["a", "b", "c"]


def test_above_the_limit_all_are_asked_to_gossip_and_need_not_beat(six: Watched) -> None:
    assert six.gossiping == six.mode() == set(NAMES)
    six.pass_time(60.0)
    assert (six.epoch, six.members) == (1, list(NAMES))


def test_who_is_asked_is_told_of_others_but_not_of_itself() -> None:
    bench = Watched(*NAMES[:4])
    bench.heed = False
    bench.join("e")
    assert {
        name for name, message in bench.asked() if message == {"type": "gossip", "seeds": []}
    } == set("abcde")
    bench.gossips("a", 1)
    assert bench.asked() == []
    bench.gossips("b", 1)
    assert bench.asked() == [("b", {"type": "gossip", "seeds": ["a:7"]})]
    bench.gossips("c", 1)
    bench.gossips("d", 1)
    bench.asked()
    bench.gossips("e", 1)
    ((_, message),) = bench.asked()
    assert len(set(message["seeds"])) == 3
    assert "e:7" not in message["seeds"]
    bench.gossips("e", 3)
    assert bench.asked() == [("e", message)], "it is on an island"
    bench.gossips("e", 5)
    assert bench.asked() == []


def test_who_is_accused_and_says_nothing_is_lost(six: Watched) -> None:
    six.accuses("a", "f")
    assert "f" not in six.gossiping, "it was told to beat"
    six.accuses("b", "f")
    six.pass_time(0.2, silent=("f",))
    assert len(six.members) == 6
    six.pass_time(0.1, silent=("f",))
    assert six.members == list("abcde")
    assert any(
        "neither the other members nor the coordinator hear its machine" in each for each in six.reports
    )


def test_one_accuser_alone_is_believed_later(six: Watched) -> None:
    six.accuses("a", "f")
    six.pass_time(0.45, silent=("f",))
    assert len(six.members) == 6
    six.pass_time(0.1, silent=("f",))
    assert six.members == list("abcde")


def test_who_is_accused_and_answers_stays_and_beats_until_it_is_asked_again(six: Watched) -> None:
    """A machine whose datagrams are lost, or that is slow: it is asked, and answers."""
    for name in "abc":
        six.accuses(name, "f")
    six.pass_time(4.8)
    assert "f" not in six.gossiping
    assert len(six.members) == 6
    six.pass_time(0.4)
    assert "f" in six.gossiping
    six.pass_time(30.0)
    assert six.epoch == 1


def test_who_has_answered_is_watched_by_its_beats(six: Watched) -> None:
    six.accuses("a", "f")
    six.pass_time(0.5)
    six.pass_time(0.9, silent=("f",))
    assert six.members == list("abcde")


def test_who_is_heard_again_in_time_is_not_lost(six: Watched) -> None:
    six.accuses("a", "f")
    six.accuses("b", "f")
    for name in "ab":
        six.do(events.Heard(six.sidecars[name], six.incarnations["f"], "s-f"))
    six.pass_time(0.7, silent=("f",))
    assert len(six.members) == 6
    six.pass_time(0.2, silent=("f",))
    assert six.members == list("abcde"), "it was told to beat, and does not"


@pytest.mark.parametrize("word", ["s-e", "", "an earlier one"])
def test_what_is_said_of_another_sidecar_is_of_no_effect(six: Watched, word: str) -> None:
    """The worker's sidecar was started again: that its former one is silent means nothing."""
    six.accuses("a", "f", sidecar=word or "x")
    six.pass_time(3.0)
    assert six.epoch == 1
    assert "f" in six.gossiping


def test_a_zombie_accuses_nobody(six: Watched) -> None:
    """One that was put out says what it likes; so does one that does not gossip, and a stranger."""
    six.sidecar_says("f", "gone")
    six.recovered(six.epoch, 0, *"abcde")
    epoch = six.epoch
    six.accuses("f", "a")
    six.do(events.Silent(999, six.incarnations["a"], "s-a"))
    six.do(events.Silent(six.connections["b"], six.incarnations["a"], "s-a"))
    six.accuses("a", "a")
    six.pass_time(3.0)
    assert six.epoch == epoch


def test_a_sidecar_of_one_that_is_put_out_is_told_to_leave_the_others(six: Watched) -> None:
    six.heed = False
    six.do(events.SidecarHello(six.sidecars["f"], "f", 77))
    assert six.asked() == [("f", {"type": "star"})]
    six.sidecar("f")
    six.gossips("f", 6)
    six.asked()
    six.says("f", events.Left, 3)
    assert ("f", {"type": "star"}) in six.asked()


def test_a_sidecar_that_is_started_again_evicts_nobody(six: Watched) -> None:
    six.do(events.Dropped(six.sidecars["f"]))
    six.gossiping.discard("f")
    six.pass_time(0.5)
    six.sidecar("f")
    assert "f" in six.gossiping
    for name in "abcd":
        six.accuses(name, "f", sidecar="the former")
    six.pass_time(10.0)
    assert six.epoch == 1


def test_below_the_limit_they_beat_again_but_not_at_its_edge(six: Watched) -> None:
    six.sidecar_says("f", "gone")
    six.sidecars.pop("f")
    six.gossiping.discard("f")
    assert len(six.gossiping) == 5
    six.sidecar_says("e", "gone")
    six.sidecars.pop("e")
    six.gossiping.discard("e")
    assert len(six.gossiping) == 4, "four beat, but they gossip already"
    six.recovered(six.epoch, 0, *"abcd")
    six.now += 4.0
    six.sidecar_says("d", "gone")
    assert not six.gossiping
    six.sidecars.pop("d")
    six.pass_time(0.7)
    assert six.members == list("abc"), "their silence until now was asked for"
    six.pass_time(0.9, silent=("c",))
    assert six.members == list("ab")


def test_one_without_others_is_watched_by_its_beats(six: Watched) -> None:
    six.gossips("f", 1)
    six.pass_time(0.9, silent=("f",))
    assert six.members == list("abcde")


def test_whom_all_others_overlook_is_missed_all_the_same(six: Watched) -> None:
    six.pass_time(15.0, silent=("f",))
    assert len(six.members) == 6
    six.pass_time(6.0, silent=("f",))
    assert six.members == list("abcde")


def test_a_beat_shows_that_nobody_watches(six: Watched) -> None:
    six.do(events.Beat(six.sidecars["f"], 0.0))
    assert six.mode() == set("abcde")


def test_when_nobody_is_heard_any_more_nobody_is_lost() -> None:
    """This process is cut off. They are heard of for the last time one after the other."""
    six = Watched(*NAMES)
    for name in NAMES:
        six.pass_time(0.3)
        six.gossips(name)
    six.pass_time(120.0, silent=NAMES)
    assert (six.epoch, six.members) == (1, list(NAMES))


def test_when_this_process_was_late_an_accusation_begins_anew(six: Watched) -> None:
    six.accuses("a", "f")
    six.now += 3.0
    six.do(events.Tick())
    assert len(six.members) == 6
    six.pass_time(0.6, silent=("f",))
    assert six.members == list("abcde")


def test_a_restart_while_they_gossip_evicts_nobody(six: Watched) -> None:
    """They come back and say that they gossip; what they said of others meanwhile is said again."""
    six.pass_time(1.0)
    again = six.restarted(star_limit=4)
    again.now = six.now
    for name in NAMES:
        again.hello(name, six.incarnations[name], 1, 3)
        again.sidecar(name)
        again.do(events.Gossips(again.sidecars[name], f"s-{name}", f"{name}:7", 6, 5.0))
    for _ in range(100):
        again.now += 0.1
        again.do(events.Tick())
    assert (again.epoch, again.members) == (1, list(NAMES))
    asked = [
        message for number in again.sidecars.values() for message in again.told.get(f"?{number}", [])
    ]
    assert not [message for message in asked if message["type"] == "star"]
    for name in "ab":
        again.do(events.Silent(again.sidecars[name], six.incarnations["f"], "s-f"))
    again.now += 0.3
    again.do(events.Tick())
    assert again.members == list("abcde")


@pytest.mark.parametrize(
    "fields",
    [
        {"sidecar": 5},
        {"sidecar": "x" * 65},
        {"members": 0},
        {"members": True},
        {"again_seconds": float("nan")},
        {"again_seconds": -1},
        {"address": None},
    ],
)
def test_misshapen_words_are_refused(fields: dict[str, Any]) -> None:
    sound = {"type": "gossiping", "sidecar": "w", "address": "h:1", "members": 2, "again_seconds": 5.0}
    assert messages.sidecar_event(1, sound) == events.Gossips(1, "w", "h:1", 2, 5.0)
    with pytest.raises(messages.Misshapen):
        messages.sidecar_event(1, sound | fields)
    accusing = {"type": "silent", "incarnation": 3, "sidecar": "w"}
    assert messages.sidecar_event(1, accusing) == events.Silent(1, 3, "w")
    with pytest.raises(messages.Misshapen):
        messages.sidecar_event(1, accusing | {"incarnation": 0})
