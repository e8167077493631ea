"""The state of a coordinator: its record, and what peers have sent since it started. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shoal.elastic.coordinator.record import Record
from shoal.elastic.view import Cursor

__all__ = ["Accusation", "Gossiping", "Peer", "Recovery", "Settings", "State"]


@dataclass(frozen=True)
class Settings:
    """How patient a coordinator is, in seconds, and what its job allows."""

    platform: bool = False
    """Whether a platform gives and takes workers: then no worker is asked from here to leave."""
    expect: int = 0
    """The first view waits for as many workers, at most `expect_seconds` after the minimum is there."""
    expect_seconds: float = 3.0
    star_limit: int = 64
    """Up to so many workers beat to this process; sidecars of more of them watch each other."""
    allow_lost_state: bool = False
    """Whether a job that has lost all its workers and has no checkpoint may begin again at step 0."""
    both_lost_seconds: float = 0.1
    worker_lost_seconds: float = 5.0
    stopped_seconds: float = 0.5
    silent_seconds: float = 0.8
    most_late_seconds: float = 1.2
    """How much the bound on silence grows at most for a sidecar with a late timer."""
    silent_without_sidecar_seconds: float = 60.0
    accused_seconds: float = 0.5
    """How long one has to say anything, when another's sidecar says that it is silent."""
    accused_by_several_seconds: float = 0.25
    ask_again_seconds: float = 0.5
    """How often some of those that do not beat are asked for a word, while a witness is wanted."""
    gossip_again_seconds: float = 5.0
    """When one that had to answer for itself is asked to gossip again."""
    stalled_seconds: float = 1.0
    """After the first `stalled`: how long to see whether all the others stall too."""
    trouble_seconds: float = 1.0
    unbuilt_seconds: float = 0.4
    restart_seconds: float = 0.6
    all_lost_seconds: float = 5.0
    """Connections of every member closed: how long they may come back."""
    all_missing_seconds: float = 30.0
    """The same after a start of this process, which has seen none of them closed."""
    let_go_seconds: float = 1.0
    company_seconds: float = 0.5
    """How long a newcomer that could come in waits for others that take their state."""
    retry_seconds: float = 2.0
    step_save_seconds: float = 5.0
    late_tick_seconds: float = 0.25


@dataclass(frozen=True)
class Gossiping:
    """A sidecar that gossips with others: `sidecar` is the word by which they know it, `address` where
    they reach it, `members` how many it knows there, itself included. It says so again each
    `again_seconds`."""

    sidecar: str
    address: str
    members: int
    again_seconds: float


@dataclass(frozen=True)
class Accusation:
    """Since `at` others (`by`: incarnations) say that the one that they know as `sidecar` is silent."""

    at: float
    sidecar: str
    by: frozenset[int]


@dataclass(frozen=True)
class Peer:
    """One incarnation. Moments are monotonic seconds; `worker` and `sidecar` are its connections."""

    name: str
    incarnation: int
    address: str
    since: float
    worker: int | None = None
    sidecar: int | None = None
    dropped_at: float = 0.0
    """When the last of its connections went."""
    worker_dropped_at: float = 0.0
    seen: bool = False
    """Whether it has had a connection to this process."""
    heard_at: float = 0.0
    late_seconds: float = 0.0
    gossip: Gossiping | None = None
    gossip_at: float = 0.0
    """From when on its sidecar may be asked to gossip; infinite: it has been."""
    accused: Accusation | None = None
    """It has sent nothing since."""
    broken: int = 0
    """The epoch in which its operations fail, as its newest report says; 0: none."""
    stopped_at: float | None = None
    stalled_at: float | None = None
    leaving_at: float | None = None
    asked_to_leave: bool = False
    let_go: bool = False
    departed: bool = False
    """It has said that it has gone out at a switch."""
    done: bool = False
    """It has exhausted its data, and says that it ends with exit code 0."""
    ended: bool = False
    """Its process is gone, as far as is known: only now `done` is certain."""
    caught_up_at: float | None = None
    """Since when it has the state of its donor."""
    donor: int | None = None
    applied: int = -1
    cursor: Cursor = field(default_factory=Cursor)
    step_seconds: float = 0.0

    @property
    def asked_to_gossip(self) -> bool:
        """Its sidecar gossips, or is about to."""
        return self.gossip_at == float("inf")

    @property
    def watched(self) -> bool:
        """Other members' sidecars watch its own, which does not beat."""
        return self.gossip is not None and self.gossip.members > 1


@dataclass(frozen=True)
class Recovery:
    """One change of members after a loss. `reports`: by incarnation, (seconds, how) as members say."""

    epoch: int
    world: int
    began_at: float
    published_at: float
    reasons: tuple[str, ...]
    lost_steps: int = 0
    """Committed steps that are to be done again: none unless all workers were lost."""
    reports: Mapping[int, tuple[float, str]] = field(default_factory=dict[int, tuple[float, str]])

    @property
    def seconds(self) -> float | None:
        """As the slowest member measured it; None until all have said."""
        if len(self.reports) < self.world:
            return None
        return max(seconds for seconds, _ in self.reports.values())

    @property
    def how(self) -> str:
        """What rolled it forward; of several answers the dearest."""
        order = ("nothing", "buckets", "state", "rerun")
        said = {how for _, how in self.reports.values()}
        return max(said, key=lambda how: order.index(how) if how in order else len(order), default="")


@dataclass(frozen=True)
class State:
    """See the module. `peers` and `lost` are by incarnation; `wake_at` is when a tick is asked for."""

    settings: Settings
    record: Record
    peers: Mapping[int, Peer] = field(default_factory=dict[int, Peer])
    connections: Mapping[int, int] = field(default_factory=dict[int, int])
    """Which incarnation is at the other end of a connection."""
    fenced: Mapping[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    """Name and incarnation of former members by the connection of their sidecar."""
    lost: Mapping[int, str] = field(default_factory=dict[int, str])
    wake_at: float | None = None
    recovering_until: float | None = None
    """After a start of this process: until when members may come back."""
    minimum_met_at: float | None = None
    began_at: float | None = None
    """When the evidence came that the next loss view answers."""
    asked_at: float = float("-inf")
    """When some that do not beat were asked for a word."""
    trouble_at: float | None = None
    renew: str | None = None
    """Why a new view with the same members is wanted."""
    unbuilt: Mapping[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])
    unbuilt_epoch: int = 0
    unbuilt_at: float | None = None
    retry_at: float | None = None
    expect: int = 0
    asked_for: int = 0
    """The size that the script asked the platform for last."""
    abandoned: int = 0
    """The planned epoch that is not wanted any more, if any."""
    paused: tuple[int, int] | None = None
    adrift_at: float | None = None
    """Since when only joiners of a planned view are left, and it is not known whether it is in use."""
    saved_step_at: float = 0.0
    blobs: Mapping[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    recoveries: tuple[Recovery, ...] = ()
    lost_steps: int = 0

    def with_peer(self, peer: Peer) -> State:
        """The same, with this peer's newest."""
        return replace(self, peers={**self.peers, peer.incarnation: peer})

    def peer_at(self, connection: int) -> Peer | None:
        """The peer at the other end."""
        incarnation = self.connections.get(connection)
        return self.peers.get(incarnation) if incarnation is not None else None
