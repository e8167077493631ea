from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from shoal.control.cache import ObjectCache, compare
from shoal.objects import codec
from shoal.objects.errors import Conflict, Exists, Expired, Invalid, NotFound, Unavailable, VersionSkew
from shoal.objects.job import Job, JobSpec, Role
from shoal.objects.kinds import JOB
from shoal.objects.meta import Metadata
from shoal.objects.queue import Queue
from shoal.store.base import SYSTEM
from shoal.store.memory import MemoryStore, Window
from shoal.testing.clock import VirtualClock
from shoal.testing.store.harness import NewerJob, newer_job

KEY = ("default", "j")


def new_job(name: str = "j", priority: int = 0) -> Job:
    return Job(
        metadata=Metadata(name=name), spec=JobSpec(roles=(Role(command=("a",)),), priority=priority)
    )


class Hooked:
    """A store that calls `before` and `after` around each write and read of one object."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in ("patch_status", "update", "create", "delete", "record", "list"):
            return method

        def called(*args: Any, **kwargs: Any) -> Any:
            if args[0] is Queue:
                return method(*args, **kwargs)  # admission's
            before, self.before = self.before, lambda: None
            after, self.after = self.after, lambda: None
            before()
            result = method(*args, **kwargs)
            after()
            return result

        return called


class World:
    def __init__(self, window: Window | None = None) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(clock=self.clock, window=window)
        self.store.create(Queue(metadata=Metadata(name="default")), actor=SYSTEM)
        self.hooked = Hooked(self.store)
        self.cache: ObjectCache[Job] = ObjectCache(self.hooked, JOB, actor=SYSTEM, clock=self.clock)
        self.changes: list[tuple[Job | None, Job | None]] = []
        self.cache.on_change(lambda old, new: self.changes.append((old, new)))

    def create(self, name: str = "j") -> Job:
        return self.store.create(new_job(name), actor=SYSTEM)

    def true(self, name: str = "j") -> Job | None:
        """The job as stored, None also when it cannot be decoded."""
        try:
            return self.store.get(Job, "default", name, actor=SYSTEM)
        except (NotFound, VersionSkew):
            return None

    def there(self, name: str = "j") -> bool:
        return any(r.identity.name == name for r in self.store.list(JOB, actor=SYSTEM).records)

    def rewrite(self, runtime: str, name: str = "j") -> None:
        """A newer version changes the spec: with `quantum` this one cannot decode it."""
        document = self.store.record(JOB, "default", name, actor=SYSTEM).document
        job = codec.decode(document, NewerJob)
        spec = msgspec.structs.replace(job.spec, runtime=runtime)
        self.store.update(msgspec.structs.replace(job, spec=spec), actor=SYSTEM)

    def stranger(self, writer: str = "job", name: str = "j", **fields: Any) -> None:
        """Another process writes the status."""
        job = self.true(name)
        assert job is not None
        counter = job.status.writers.get(writer, 0)
        self.store.patch_status(
            JOB, "default", name, actor=SYSTEM, writer=writer, uid=job.metadata.uid, counter=counter,
            fields=fields or {"attempt": job.status.attempt + 1},
        )  # fmt: skip

    def label(self, value: str, name: str = "j") -> Job:
        """Another process changes what no counter counts."""
        job = self.true(name)
        assert job is not None
        metadata = msgspec.structs.replace(job.metadata, labels={"x": value})
        return self.store.update(msgspec.structs.replace(job, metadata=metadata), actor=SYSTEM)

    def gone(self, name: str = "j") -> None:
        self.store.delete(JOB, "default", name, actor=SYSTEM)


@pytest.fixture
def world() -> World:
    world = World()
    world.create()
    world.cache.sync()
    world.changes.clear()
    return world


def test_it_lists_then_watches():
    world = World()
    job = world.create()
    assert not world.cache.synced
    assert world.cache.sync()
    assert world.cache.synced and world.cache.get(KEY) == job and len(world.cache) == 1
    assert world.changes == [(None, job)]
    world.stranger()
    assert world.cache.ready.is_set()
    world.cache.sync()
    assert world.cache.get(KEY).status.attempt == 1
    assert not world.cache.sync()
    world.gone()
    world.cache.sync()
    assert world.cache.get(KEY) is None and world.cache.all() == []


def test_an_own_write_shows_at_once_and_its_event_changes_nothing(world: World):
    job = world.cache.patch_status(world.cache.get(KEY), writer="job", fields={"attempt": 7})
    assert job.status.attempt == 7
    assert world.cache.get(KEY) is job
    assert len(world.changes) == 1
    world.cache.sync()
    assert world.cache.get(KEY) is job
    assert len(world.changes) == 1


def test_older_events_never_replace_an_own_write(world: World):
    world.label("old")
    world.stranger(writer="scheduler", scheduling={"code": "X"})
    mine = world.cache.patch_status(world.cache.get(KEY), writer="job", fields={"attempt": 7})
    assert mine.metadata.labels == {"x": "old"}
    world.label("new")
    world.cache.sync()
    assert world.cache.get(KEY).metadata.labels == {"x": "new"}
    assert [new.metadata.labels["x"] for _, new in world.changes] == ["old", "new"]


def test_a_result_that_comes_after_newer_events_is_dropped(world: World):
    def meanwhile() -> None:
        world.label("newest")
        world.cache.sync()

    world.hooked.after = meanwhile
    world.cache.patch_status(world.cache.get(KEY), writer="job", fields={"attempt": 7})
    assert world.cache.get(KEY).metadata.labels == {"x": "newest"}
    assert world.cache.get(KEY).status.attempt == 7
    world.label("later still")
    world.cache.sync()
    assert world.cache.get(KEY).metadata.labels == {"x": "later still"}


def test_a_result_that_comes_after_a_newer_own_write_is_dropped(world: World):
    def meanwhile() -> None:
        world.cache.patch_status(
            world.cache.get(KEY), writer="scheduler", fields={"scheduling": {"code": "X"}}
        )

    world.hooked.after = meanwhile
    world.cache.patch_status(world.cache.get(KEY), writer="job", fields={"attempt": 7})
    assert world.cache.get(KEY) == world.true()


def test_a_read_that_crosses_a_write_does_not_bring_back_the_old_state(world: World):
    def meanwhile() -> None:
        world.stranger()
        world.cache.sync()

    world.hooked.after = meanwhile
    world.cache.refresh(KEY)
    assert world.cache.get(KEY).status.attempt == 1


def test_a_conflict_brings_the_cache_up_to_date(world: World):
    stale = world.cache.get(KEY)
    world.stranger()
    with pytest.raises(Conflict):
        world.cache.patch_status(stale, writer="job", fields={"attempt": 7})
    assert world.cache.get(KEY) == world.true()


def test_a_write_to_what_is_gone_removes_it_and_late_events_do_not_revive_it(world: World):
    stale = world.cache.get(KEY)
    world.stranger()
    world.gone()
    with pytest.raises(NotFound):
        world.cache.patch_status(stale, writer="job", fields={"attempt": 7})
    assert world.cache.get(KEY) is None
    world.create()
    world.cache.sync()
    assert world.cache.get(KEY) == world.true()
    assert [(old is None, new is None) for old, new in world.changes] == [(False, True), (True, False)]


def test_a_write_that_lands_after_the_deletion_does_not_revive_it(world: World):
    def meanwhile() -> None:
        world.gone()
        world.cache.sync()

    world.hooked.after = meanwhile
    world.cache.patch_status(world.cache.get(KEY), writer="job", fields={"attempt": 7})
    assert world.cache.get(KEY) is None


def test_an_own_creation_replaces_what_is_known_to_be_gone(world: World):
    world.gone()
    mine = world.cache.create(new_job(priority=5))
    assert world.cache.get(KEY) is mine
    world.cache.sync()
    assert world.cache.get(KEY) is mine


def test_creating_what_is_there_is_an_error(world: World):
    with pytest.raises(Exists):
        world.cache.create(new_job())


def test_updates_and_deletion_show_at_once(world: World):
    job = world.cache.get(KEY)
    kept = msgspec.structs.replace(job.metadata, finalizers=("shoal.dev/x",))
    job = world.cache.update(msgspec.structs.replace(job, metadata=kept))
    world.cache.delete(job)
    job = world.cache.get(KEY)
    assert job.metadata.deleted
    free = msgspec.structs.replace(job.metadata, finalizers=())
    world.cache.update(msgspec.structs.replace(job, metadata=free))
    assert world.cache.get(KEY) is None
    world.cache.sync()
    assert world.cache.get(KEY) is None
    world.cache.delete(job)


def test_a_gap_in_the_watch_is_a_list_and_a_comparison():
    world = World(Window(count=3))
    for name in ("changed", "gone", "same"):
        world.create(name)
    world.cache.sync()
    same = world.cache.get(("default", "same"))
    world.changes.clear()
    world.gone("gone")
    for _ in range(9):
        world.stranger(name="changed")
    world.create("new")
    world.cache.sync()
    assert world.cache.get(("default", "same")) is same
    names = sorted((new or old).metadata.name for old, new in world.changes)
    assert names == ["changed", "gone", "new"]
    assert world.cache.get(("default", "changed")).status.attempt == 9


def test_writes_that_cross_a_list_are_kept():
    world = World(Window(count=6))
    world.create()
    world.create("other")
    world.cache.sync()
    for _ in range(12):
        world.stranger(name="other")

    def meanwhile() -> None:
        job = world.cache.get(KEY)
        world.cache.patch_status(job, writer="job", fields={"attempt": 7})
        world.cache.delete(world.cache.get(("default", "other")))
        world.cache.create(new_job("third"))

    world.hooked.after = meanwhile
    world.cache.sync()
    world.cache.sync()
    assert world.cache.get(KEY).status.attempt == 7
    assert world.cache.get(("default", "other")) is None
    assert world.cache.get(("default", "third")) is not None
    world.label("after")
    world.cache.sync()
    assert world.cache.get(KEY).metadata.labels == {"x": "after"}


def test_a_write_that_a_whole_list_overtook_is_read_again():
    world = World(Window(count=6))
    world.create()
    world.create("other")
    world.cache.sync()

    def meanwhile() -> None:
        world.label("newest")
        for _ in range(12):
            world.stranger(name="other")
        world.cache.sync()

    job = world.cache.get(KEY)
    metadata = msgspec.structs.replace(job.metadata, labels={"x": "mine"})
    world.hooked.after = meanwhile
    world.cache.update(msgspec.structs.replace(job, metadata=metadata))
    assert world.cache.get(KEY).metadata.labels == {"x": "newest"}
    world.label("after")
    world.cache.sync()
    assert world.cache.get(KEY).metadata.labels == {"x": "after"}


def test_what_cannot_be_decoded_is_left_out_and_the_rest_goes_on():
    world = World()
    world.create("a")
    world.store.create(newer_job("b"), actor=SYSTEM)
    found = []
    world.cache.on_undecodable(found.append)
    world.cache.sync()
    assert world.cache.synced
    assert [job.metadata.name for job in world.cache.all()] == ["a"]
    assert [(each.kind, each.name) for each in world.cache.undecodable()] == [("Job", "b")]
    assert "quantum" in found[0].error and len(found) == 1
    world.store.create(newer_job("c"), actor=SYSTEM)
    world.create("d")
    world.cache.sync()
    assert world.cache.get(("default", "d")) is not None, "an event behind a bad one was lost"
    assert [each.name for each in found] == ["b", "c"]


def test_what_is_mended_comes_back_and_what_is_deleted_is_forgotten(world: World):
    world.rewrite("quantum")
    world.cache.sync()
    assert world.cache.get(KEY) is None and world.cache.quarantined(KEY)
    assert [job.metadata.name for job in world.cache.last_known()] == ["j"]
    world.rewrite("plain")
    world.cache.sync()
    assert world.cache.get(KEY) == world.true() and not world.cache.undecodable()
    assert [new is None for _, new in world.changes] == [True, False]
    world.rewrite("quantum")
    world.cache.sync()
    world.gone()
    world.cache.sync()
    assert not world.cache.undecodable() and not world.cache.last_known()


def test_a_relist_takes_in_what_became_undecodable_or_went(world: World):
    world.store.create(newer_job("b"), actor=SYSTEM)
    world.cache.sync()
    world.rewrite("quantum")
    world.gone("b")
    world.cache.close()
    world.cache.sync()
    assert [each.name for each in world.cache.undecodable()] == ["j"]
    assert world.cache.all() == []


def test_an_own_write_to_what_cannot_be_decoded_any_more_fails_and_leaves_nothing_behind(world: World):
    job = world.cache.get(KEY)
    world.rewrite("quantum")
    with pytest.raises(Invalid, match="cannot be decoded"):
        world.cache.patch_status(job, writer="scheduler", fields={"scheduling": {"since": 2.0}})
    assert world.cache.quarantined(KEY)
    assert world.cache.refresh(KEY) is None
    assert world.cache._in_flight == []
    world.cache.sync()
    world.rewrite("plain")
    world.cache.sync()
    assert world.cache.get(KEY) == world.true()


def test_what_cannot_be_decoded_can_be_deleted_through_the_cache(world: World):
    job = world.cache.get(KEY)
    world.rewrite("quantum")
    world.cache.delete(job)
    world.cache.sync()
    assert not world.there() and world.cache.get(KEY) is None and not world.cache.undecodable()


def test_a_callback_that_raises_gets_the_change_again_and_costs_the_others_nothing(world: World):
    seen, broken = [], [True]

    def fragile(old: Job | None, new: Job | None) -> None:
        if broken[0]:
            raise KeyError("bug")
        seen.append((old and old.metadata.name, new and new.metadata.name))

    world.cache.on_change(fragile)
    after: list[str] = []
    world.cache.on_change(lambda old, new: after.append((new or old).metadata.name))
    world.stranger()
    world.create("k")
    world.cache.sync()
    assert after == ["j", "k"] and len(world.changes) == 2
    world.stranger()
    world.cache.sync()
    assert seen == [] and after == ["j", "k", "j"]
    broken[0] = False
    world.cache.sync()
    assert set(seen) == {(None, "k"), ("j", "j")}
    world.cache.sync()
    assert len(seen) == 2


class Hostile:
    """A store whose watch fails as it likes, and takes what it had with it."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.polls: list[Exception] = []
        self.lists: list[Exception] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def list(self, *args: Any, **kwargs: Any) -> Any:
        if self.lists:
            raise self.lists.pop()
        return self._store.list(*args, **kwargs)

    def watch(self, *args: Any, **kwargs: Any) -> Any:
        watch, poll = self._store.watch(*args, **kwargs), None
        poll = watch.poll

        def hostile() -> Any:
            events = poll()
            if self.polls:
                raise self.polls.pop()
            return events

        watch.poll = hostile
        return watch


@pytest.mark.parametrize(
    "error",
    [Expired("gone"), RuntimeError("a bug"), msgspec.DecodeError("half a frame"), OSError("cut")],
)
def test_a_watch_that_fails_is_opened_anew_and_nothing_is_missed(error: Exception):
    store = MemoryStore(clock=VirtualClock())
    hostile = Hostile(store)
    cache: ObjectCache[Job] = ObjectCache(hostile, JOB, actor=SYSTEM, clock=VirtualClock())
    changes = []
    cache.on_change(lambda old, new: changes.append((old and old.key[1], new and new.key[1])))
    for name in ("kept", "gone"):
        store.create(new_job(name), actor=SYSTEM)
    cache.sync()
    changes.clear()
    store.create(new_job("new"), actor=SYSTEM)
    store.delete(JOB, "default", "gone", actor=SYSTEM)
    hostile.polls.append(error)
    hostile.lists.append(Unavailable("not now"))
    for _ in range(4):
        with suppress(Unavailable, RuntimeError, msgspec.DecodeError, OSError):
            cache.sync()
    assert sorted(job.metadata.name for job in cache.all()) == ["kept", "new"]
    assert set(changes) == {("gone", None), (None, "new")} and len(changes) == 2, (
        "the difference, once each"
    )
    assert cache._in_flight == []


class CacheMachine(RuleBasedStateMachine):
    """Any interleaving of own writes, strangers' writes, events, gaps and crossings: the cache never
    goes back in time, and with everything delivered it is what the store has."""

    names = st.sampled_from(["a", "b"])
    meanwhiles = st.lists(
        st.sampled_from(["sync", "stranger", "label", "own", "flood", "delete", "spoil", "mend"]),
        max_size=3,
    )

    @initialize(small=st.booleans())
    def begin(self, small: bool) -> None:
        self.world = World(Window(count=6 if small else 1000))
        self.newest: dict[tuple[str, str], Job] = {}
        self.world.cache.on_change(self.note)
        self.world.create("a")
        self.world.cache.sync()

    def note(self, old: Job | None, new: Job | None) -> None:
        if new is None:
            return
        last = self.newest.get(new.key)
        if last is not None and last.metadata.uid == new.metadata.uid:
            assert compare(new, last) >= 0, "went back in time"
        self.newest[new.key] = new

    def do(self, what: str, name: str) -> None:
        world, there = self.world, self.world.true(name) is not None
        cached = world.cache.get(("default", name))
        if what == "sync":
            world.cache.sync()
        elif what == "flood":
            for _ in range(12 if there else 0):
                world.stranger(name=name)
        elif what == "stranger" and there:
            world.stranger(name=name)
        elif what == "label" and there:
            world.label(str(len(self.newest)) + str(id(what) % 97), name)
        elif what == "delete" and world.there(name):
            world.gone(name)
        elif what in ("spoil", "mend") and world.there(name):
            world.rewrite("quantum" if what == "spoil" else "plain", name)
        elif what == "own" and cached is not None:
            self.write(cached)

    def write(self, cached: Job) -> None:
        fields = {"scheduling": {"since": 1.0 + cached.status.attempt}}
        with suppress(Conflict, NotFound, Invalid):
            self.world.cache.patch_status(cached, writer="scheduler", fields=fields)

    def arm(self, before: list[str], after: list[str], name: str) -> None:
        self.world.hooked.before = lambda: [self.do(what, name) for what in before] and None
        self.world.hooked.after = lambda: [self.do(what, name) for what in after] and None

    @rule(
        what=st.sampled_from(["sync", "stranger", "label", "flood", "delete", "spoil", "mend"]),
        name=names,
    )
    def simple(self, what: str, name: str) -> None:
        self.do(what, name)

    @rule(name=names)
    def create(self, name: str) -> None:
        if not self.world.there(name):
            self.world.create(name)

    @rule(name=names, before=meanwhiles, after=meanwhiles)
    def own_write(self, name: str, before: list[str], after: list[str]) -> None:
        self.arm(before, after, name)
        self.do("own", name)
        self.arm([], [], name)

    @rule(name=names, before=meanwhiles, after=meanwhiles)
    def own_label(self, name: str, before: list[str], after: list[str]) -> None:
        cached = self.world.cache.get(("default", name))
        if cached is None:
            return
        metadata = msgspec.structs.replace(cached.metadata, labels={"own": str(len(before + after))})
        self.arm(before, after, name)
        with suppress(Conflict, NotFound):
            self.world.cache.update(msgspec.structs.replace(cached, metadata=metadata))
        self.arm([], [], name)

    @rule(name=names, after=meanwhiles)
    def refresh(self, name: str, after: list[str]) -> None:
        self.arm([], after, name)
        self.world.cache.refresh(("default", name))
        self.arm([], [], name)

    @rule(
        name=names, after=st.lists(st.sampled_from(["stranger", "label", "own", "delete"]), max_size=3)
    )
    def gap(self, name: str, after: list[str]) -> None:
        if self.world.true(name) is not None:
            self.do("flood", name)
        self.arm([], after, name)
        self.world.cache.sync()
        self.arm([], [], name)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for _ in range(3):
            self.world.cache.sync()
        for name in ("a", "b"):
            key, true = ("default", name), self.world.true(name)
            assert self.world.cache.get(key) == true
            assert bool(self.world.cache.quarantined(key)) == (true is None and self.world.there(name))


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestCacheMachine.pytestmark = [pytest.mark.slow]
