"""Deleting: finalizers, and what goes with its owner."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from msgspec.structs import replace

from shoal.objects.errors import Conflict, Exists, Invalid, NotFound
from shoal.objects.job import Job
from shoal.objects.kinds import JOB, QUEUE
from shoal.objects.meta import Metadata, Object, OwnerReference, PartialObject
from shoal.objects.queue import Queue
from shoal.store.base import SYSTEM, Store
from shoal.testing.store.harness import (
    DEADLINE_SECONDS,
    Rules,
    collect,
    document,
    job,
    names,
    needs,
    newer_job,
    start_of,
)
from shoal.testing.store.status import patch
from shoal.testing.store.writes import edited, respecified

__all__ = ["DeletionRules"]


class DeletionRules(Rules):
    """Rules of `delete`, of finalizers and of owners."""

    def test_without_finalizers_an_object_goes_at_once(self, store: Store) -> None:
        made = store.create(job("a", labels={"x": "1"}), actor=SYSTEM)
        watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
        last = store.delete(JOB, "default", "a", actor=SYSTEM)
        assert last.object.metadata.uid == made.metadata.uid
        with pytest.raises(NotFound):
            store.get(Job, "default", "a", actor=SYSTEM)
        (event,) = collect(watch, 1)
        assert event.type == "Deleted"
        assert event.record is not None
        metadata = event.record.object.metadata
        assert (metadata.uid, metadata.labels) == (made.metadata.uid, {"x": "1"})
        assert metadata.resource_version != made.metadata.resource_version
        watch.close()

    def test_only_what_is_there_can_be_deleted(self, store: Store) -> None:
        with pytest.raises(NotFound):
            store.delete(JOB, "default", "a", actor=SYSTEM)
        store.create(job("a"), actor=SYSTEM)
        with pytest.raises(NotFound):
            store.delete(JOB, "default", "a", actor=SYSTEM, uid="another")
        assert names(store.list(JOB, actor=SYSTEM)) == ["a"]

    def test_a_finalizer_holds_the_object(self, store: Store) -> None:
        store.create(job("a", finalizers=("one", "two")), actor=SYSTEM)
        watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
        asked = store.delete(JOB, "default", "a", actor=SYSTEM).object
        assert asked.metadata.deleted > 0
        assert store.get(Job, "default", "a", actor=SYSTEM) == asked
        assert store.delete(JOB, "default", "a", actor=SYSTEM).object == asked
        with pytest.raises(Exists):
            store.create(job("a"), actor=SYSTEM)
        held = store.update(edited(asked, finalizers=("two",)), actor=SYSTEM)
        assert store.get(Job, "default", "a", actor=SYSTEM) == held
        store.update(edited(held, finalizers=()), actor=SYSTEM)
        with pytest.raises(NotFound):
            store.get(Job, "default", "a", actor=SYSTEM)
        assert [event.type for event in collect(watch, 3)] == ["Modified", "Modified", "Deleted"]
        watch.close()

    def test_what_is_being_deleted_takes_finalizers_and_status_only(self, store: Store) -> None:
        made = store.create(job("a", finalizers=("one",)), actor=SYSTEM)
        asked = store.delete(JOB, "default", "a", actor=SYSTEM).object
        for wanted in (
            respecified(asked, suspend=True),
            edited(asked, labels={"x": "1"}),
            edited(asked, finalizers=("one", "more")),
            edited(respecified(asked, suspend=True), finalizers=()),
        ):
            with pytest.raises(Invalid, match="deleted"):
                store.update(wanted, actor=SYSTEM)
        after = patch(store, made, 0, {"phase": "Cancelled"}).object
        assert after.status.phase == "Cancelled"
        store.update(edited(after, finalizers=()), actor=SYSTEM)
        assert store.list(JOB, actor=SYSTEM).records == ()

    def test_a_finalizer_may_go_before_deletion_is_asked_for(self, store: Store) -> None:
        made = store.create(job("a", finalizers=("one",)), actor=SYSTEM)
        store.update(edited(made, finalizers=()), actor=SYSTEM)
        assert store.get(Job, "default", "a", actor=SYSTEM).metadata.finalizers == ()

    @needs("newer")
    def test_a_finalizer_of_an_undecodable_object_can_be_removed(self, store: Store) -> None:
        made = newer_job("a")
        metadata = replace(made.metadata, finalizers=("one", "two"), labels={"x": "1"})
        store.create(replace(made, metadata=metadata), actor=SYSTEM)
        store.delete(JOB, "default", "a", actor=SYSTEM)
        for kept in (("two",), ()):
            before = document(store, "a")
            found = store.record(JOB, "default", "a", actor=SYSTEM).decode(PartialObject)
            fewer = replace(found, metadata=replace(found.metadata, finalizers=kept))
            store.update(fewer, actor=SYSTEM)
            if kept:
                after = document(store, "a")
                assert after["metadata"]["finalizers"] == ["two"]
                assert after["metadata"]["labels"] == {"x": "1"}
                assert after["spec"] == before["spec"]
        assert names(store.list(JOB, actor=SYSTEM)) == []

    def test_what_is_owned_goes_with_its_owner(self, store: Store) -> None:
        queue = store.create(Queue(metadata=Metadata(name="q")), actor=SYSTEM)
        parent = store.create(job("parent", owners=(owner(queue),)), actor=SYSTEM)
        store.create(job("child", "other", owners=(owner(parent),)), actor=SYSTEM)
        store.create(job("unrelated"), actor=SYSTEM)
        store.delete(QUEUE, "", "q", actor=SYSTEM)
        eventually(store, ["unrelated"])

    def test_an_owned_object_with_a_finalizer_is_asked_to_go(self, store: Store) -> None:
        parent = store.create(job("parent"), actor=SYSTEM)
        child = store.create(job("child", owners=(owner(parent),), finalizers=("one",)), actor=SYSTEM)
        store.create(job("grandchild", owners=(owner(child),)), actor=SYSTEM)
        store.delete(JOB, "default", "parent", actor=SYSTEM)
        eventually(store, ["child", "grandchild"])
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (held := store.get(Job, "default", "child", actor=SYSTEM)).metadata.deleted:
            assert time.monotonic() < deadline
        store.update(edited(held, finalizers=()), actor=SYSTEM)
        eventually(store, [])

    def test_an_owner_that_waits_for_its_finalizer_keeps_what_it_owns(self, store: Store) -> None:
        parent = store.create(job("parent", finalizers=("one",)), actor=SYSTEM)
        store.create(job("child", owners=(owner(parent),)), actor=SYSTEM)
        asked = store.delete(JOB, "default", "parent", actor=SYSTEM).object
        assert names(store.list(JOB, actor=SYSTEM)) == ["child", "parent"]
        store.update(edited(asked, finalizers=()), actor=SYSTEM)
        eventually(store, [])

    def test_owners_can_be_changed(self, store: Store) -> None:
        one = store.create(job("one"), actor=SYSTEM)
        two = store.create(job("two"), actor=SYSTEM)
        child = store.create(job("child", owners=(owner(one),)), actor=SYSTEM)
        store.update(edited(child, owners=(owner(two),)), actor=SYSTEM)
        store.delete(JOB, "default", "one", actor=SYSTEM)
        assert names(store.list(JOB, actor=SYSTEM)) == ["child", "two"]
        store.delete(JOB, "default", "two", actor=SYSTEM)
        eventually(store, [])

    def test_owners_in_a_circle_go_together(self, store: Store) -> None:
        one = store.create(job("one"), actor=SYSTEM)
        two = store.create(job("two", owners=(owner(one),)), actor=SYSTEM)
        store.update(edited(one, owners=(owner(two), owner(one))), actor=SYSTEM)
        store.delete(JOB, "default", "two", actor=SYSTEM)
        eventually(store, [])

    def test_nothing_stays_with_an_owner_that_is_gone(self, store: Store) -> None:
        """The create is refused or the object is deleted soon: no later event would delete it."""
        parent = store.create(job("parent"), actor=SYSTEM)
        store.delete(JOB, "default", "parent", actor=SYSTEM)
        with suppress(Conflict):
            store.create(job("child", owners=(owner(parent),)), actor=SYSTEM)
        eventually(store, [])

    def test_each_deletion_is_an_event(self, store: Store) -> None:
        parent = store.create(job("parent"), actor=SYSTEM)
        for number in range(5):
            store.create(job(f"child-{number}", owners=(owner(parent),)), actor=SYSTEM)
        watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
        store.delete(JOB, "default", "parent", actor=SYSTEM)
        events = collect(watch, 6)
        assert {event.type for event in events} == {"Deleted"}
        assert len({event.version for event in events}) == 6
        watch.close()


def owner(obj: Object) -> OwnerReference:
    """A reference to the object."""
    return OwnerReference(kind=obj.kind, name=obj.metadata.name, uid=obj.metadata.uid)


def eventually(store: Store, wanted: list[str]) -> None:
    """Wait until these jobs are left: a store may delete what is owned a little later."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (found := names(store.list(JOB, actor=SYSTEM))) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
