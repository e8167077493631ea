"""Which news wins: training-C4, on the table alone, and training-C5's merge of another's table."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from shoal.elastic.detect.swim.members import Awareness, Gossip, Members
from shoal.elastic.detect.swim.messages import Alive, Dead, Message, Row, Suspect, decode, packet
from shoal.elastic.detect.swim.settings import Settings

A = "10.0.0.2:1"


class Table:
    """The table of `me`, with what it wants passed on."""

    def __init__(self, *news: Alive | Suspect | Dead) -> None:
        self.gossip = Gossip()
        self.awareness = Awareness(8)
        self.members = Members(
            Alive(1, "me", "10.0.0.1:1"), Settings(), self.gossip, self.awareness, random.Random(1)
        )
        self.told()
        self.apply(*news)
        self.changes()
        self.told()

    def apply(self, *news: Alive | Suspect | Dead, now: float = 1.0) -> None:
        for each in news:
            if isinstance(each, Alive):
                self.members.alive(each, now)
            elif isinstance(each, Suspect):
                self.members.suspect(each, now)
            else:
                self.members.dead(each, now)

    def changes(self) -> list[str]:
        """What was learned since the last call."""
        found = [change.kind for change in self.members.changes]
        self.members.changes.clear()
        return found

    def told(self) -> list[Message]:
        """What is passed on since the last call."""
        encoded: list[bytes] = []
        while taken := self.gossip.take(10_000, 1):
            encoded += taken
        return decode(packet(encoded), 10_000) if encoded else []

    def of(self, name: str) -> tuple[str, int]:
        known = self.members.get(name)
        assert known is not None
        return known.state, known.incarnation


def test_a_new_member_is_known_once_and_passed_on() -> None:
    """training-C4: alive of a stranger: one event, one piece of gossip; said again: nothing."""
    table = Table()
    table.apply(Alive(1, "a", A), Alive(1, "a", A))
    assert table.changes() == ["joined"]
    assert table.told() == [Alive(1, "a", A)]
    assert len(table.members) == 2
    table.apply(Alive(1, "a", A))
    assert not table.told()


def test_suspicion_is_refuted_by_a_higher_incarnation_alone() -> None:
    """training-C4: alive 1, suspect 1, alive 1 (nothing), alive 2."""
    table = Table(Alive(1, "a", A))
    table.apply(Suspect(1, "a", "b"))
    assert table.of("a") == ("suspect", 1)
    table.told()
    table.apply(Alive(1, "a", A))
    assert table.of("a") == ("suspect", 1)
    assert not table.told()
    table.apply(Alive(2, "a", A))
    assert table.of("a") == ("alive", 2)
    assert table.changes() == ["suspect", "alive"]
    assert table.members.expires_at == float("inf")


@pytest.mark.parametrize(
    "news",
    [
        Suspect(1, "a", "b"),
        Dead(1, "a", "b"),
        Alive(1, "a", A),
        Suspect(1, "nobody", "b"),
        Dead(9, "no", "b"),
    ],
)
def test_stale_news_and_news_of_strangers_never_win(news: Alive | Suspect | Dead) -> None:
    """training-C4: an old incarnation, or somebody never heard of, changes nothing."""
    table = Table(Alive(2, "a", A))
    table.apply(news)
    assert table.of("a") == ("alive", 2)
    assert not table.changes()
    assert not table.told()


def test_news_said_twice_changes_nothing() -> None:
    """training-C4: suspect by the same accuser, dead again: no event, no gossip, the same deadline."""
    table = Table(Alive(1, "a", A), *(Alive(1, f"m{at}", f"10.0.1.{at}:1") for at in range(6)))
    table.apply(Suspect(1, "a", "b"))
    until = table.members.expires_at
    assert table.told() == [Suspect(1, "a", "b")]
    table.apply(Suspect(1, "a", "b"), now=1.1)
    assert table.members.expires_at == until
    assert not table.told()
    table.apply(Suspect(1, "a", "c"), now=1.1)
    assert table.members.expires_at < until
    assert table.told() == [Suspect(1, "a", "c")]
    table.apply(Dead(1, "a", "b"))
    table.told()
    table.apply(Dead(1, "a", "c"), Suspect(1, "a", "c"))
    assert not table.told()
    assert table.changes() == ["suspect", "dead"]


def test_nothing_revives_the_dead_at_their_incarnation() -> None:
    """training-C4: alive 1 after dead 1 is old news; alive 2 is a return, and an event."""
    table = Table(Alive(1, "a", A), Dead(1, "a", "b"))
    table.apply(Alive(1, "a", A), Suspect(1, "a", "b"))
    assert table.of("a") == ("dead", 1)
    assert not table.changes()
    table.apply(Alive(2, "a", A))
    assert table.of("a") == ("alive", 2)
    assert table.changes() == ["joined"]


def test_another_address_for_a_name_is_a_conflict_until_it_is_dead() -> None:
    """training-C4: the first address stays while the member is there; a dead one's name may be taken."""
    table = Table(Alive(1, "a", A))
    table.apply(Alive(2, "a", "10.0.0.3:1"))
    assert table.changes() == ["conflict"]
    known = table.members.get("a")
    assert known is not None
    assert (known.address, known.incarnation) == (A, 1)
    assert not table.told()
    table.apply(Dead(1, "a", "b"), Alive(2, "a", "10.0.0.3:1"))
    assert known.address == "10.0.0.3:1"
    assert table.changes() == ["dead", "joined"]


@pytest.mark.parametrize("accuse", [Suspect, Dead])
def test_what_is_said_of_oneself_is_refuted(accuse: Callable[[int, str, str], Suspect | Dead]) -> None:
    """training-C4: with an incarnation above the accusation's; a stale one is not worth an answer."""
    table = Table()
    table.apply(accuse(5, "me", "b"))
    assert table.told() == [Alive(6, "me", "10.0.0.1:1")]
    assert table.of("me") == ("alive", 6)
    assert table.awareness.score == 1
    table.apply(accuse(5, "me", "b"))
    assert not table.told()
    assert not table.changes()


def test_another_that_claims_to_be_me_is_refuted() -> None:
    """training-C4: alive with my name, higher or from elsewhere; my own news, come back, is nothing."""
    table = Table()
    table.apply(Alive(1, "me", "10.0.0.1:1"))
    assert not table.told()
    table.apply(Alive(4, "me", "10.0.0.1:1"))
    assert table.told() == [Alive(5, "me", "10.0.0.1:1")]
    table.apply(Alive(5, "me", "10.9.9.9:1"))
    assert table.told() == [Alive(6, "me", "10.0.0.1:1")]


def test_to_leave_is_not_to_die() -> None:
    """training-C4: dead by one's own word is `left`; who leaves refutes nothing any more."""
    table = Table(Alive(1, "a", A))
    table.apply(Dead(1, "a", "a"))
    assert table.of("a") == ("left", 1)
    assert table.changes() == ["left"]
    table.members.leave(2.0)
    assert Dead(1, "me", "me") in table.told()
    table.apply(Suspect(1, "me", "b"), Dead(1, "me", "b"), Alive(3, "me", "10.0.0.1:1"))
    assert not table.told()
    assert table.of("me") == ("left", 1)


def test_the_table_of_another() -> None:
    """training-C5 (merge): alive refutes, suspect and dead are suspicions, a stranger joins once."""
    table = Table(*(Alive(1, f"m{at}", f"10.0.0.1{at}:1") for at in range(1, 4)), Suspect(1, "m1", "b"))
    rows = (
        Row("m1", "10.0.0.11:1", 2, "alive"),
        Row("m2", "10.0.0.12:1", 1, "suspect"),
        Row("m3", "10.0.0.13:1", 1, "dead"),
        Row("m4", "10.0.0.14:1", 2, "alive"),
        Row("m5", "10.0.0.15:1", 2, "dead"),
    )
    table.members.merge(rows, 2.0)
    assert [table.of(f"m{at}") for at in range(1, 5)] == [
        ("alive", 2), ("suspect", 1), ("suspect", 1), ("alive", 2),
    ]  # fmt: skip
    assert table.members.get("m5") is None
    assert sorted(table.changes()) == ["alive", "joined", "suspect", "suspect"]
    table.members.merge(rows, 2.0)
    assert not table.changes()


def test_my_own_death_in_the_table_of_another_is_refuted() -> None:
    """training-C5: who is back is told that it died, and says otherwise."""
    table = Table()
    table.members.merge([Row("me", "10.0.0.1:1", 3, "dead")], 2.0)
    assert table.of("me") == ("alive", 4)
    assert table.told() == [Alive(4, "me", "10.0.0.1:1")]


def test_random_news_in_any_order_and_twice_ends_the_same() -> None:
    """training-C4: about each incarnation the strongest word wins, however often and late it is said."""
    for seed in range(50):
        randomness = random.Random(seed)
        news: list[Alive | Suspect | Dead] = [
            kind(incarnation)
            for incarnation in range(1, 4)
            for kind in (
                lambda i: Alive(i, "a", A),
                lambda i: Suspect(i, "a", "b"),
                lambda i: Dead(i, "a", "b"),
            )
        ]
        randomness.shuffle(news)
        table = Table(Alive(1, "a", A))
        table.apply(*news, *news)
        assert table.of("a") == ("dead", 3), f"seed {seed}: {news}"
