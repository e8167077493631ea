"""Creating and updating."""

from __future__ import annotations

import msgspec
import pytest

from shoal.objects.errors import Conflict, Exists, Invalid, NotFound
from shoal.objects.job import Job, JobSpec, JobStatus, Role
from shoal.objects.kinds import JOB, QUEUE
from shoal.objects.meta import Metadata
from shoal.objects.queue import Queue
from shoal.store.base import SYSTEM, Store
from shoal.testing.clock import VirtualClock
from shoal.testing.store.harness import (
    ALICE,
    Rules,
    StoreHarness,
    collect,
    document,
    job,
    needs,
    opened,
    start_of,
)

__all__ = ["WriteRules"]


class NewerSpec(JobSpec, frozen=True, kw_only=True):
    """A JobSpec of a newer Shoal."""

    colour: str = ""


class NewerJob(Job, frozen=True, kw_only=True):
    """A Job of a newer Shoal."""

    spec: NewerSpec


class WriteRules(Rules):
    """Rules of `create`, `get`, `record` and `update`."""

    def test_create_gives_identity(self, store: Store) -> None:
        made = store.create(job("a", labels={"team": "x"}, annotations={"note": "1"}), actor=ALICE)
        metadata = made.metadata
        assert metadata.uid and metadata.resource_version
        assert (metadata.generation, metadata.submitter, metadata.deleted) == (1, "alice", 0.0)
        assert metadata.created > 0
        assert (metadata.labels, metadata.annotations) == ({"team": "x"}, {"note": "1"})
        assert made.spec == job("a").spec
        assert store.get(Job, "default", "a", actor=SYSTEM) == made
        assert store.record(JOB, "default", "a", actor=SYSTEM).object == made

    def test_what_the_store_gives_cannot_be_brought_along(self, store: Store) -> None:
        forged = job(
            "a",
            uid="mine",
            resource_version="7",
            generation=9,
            created=1.0,
            deleted=2.0,
            submitter="root",
        )
        metadata = store.create(forged, actor=ALICE).metadata
        assert metadata.uid != "mine" and metadata.resource_version != "7"
        assert (metadata.generation, metadata.deleted, metadata.submitter) == (1, 0.0, "alice")
        assert metadata.created != 1.0

    def test_a_status_given_at_create_is_dropped(self, store: Store) -> None:
        status = JobStatus(phase="Succeeded", writers={"job": 5})
        made = store.create(msgspec.structs.replace(job("a"), status=status), actor=SYSTEM)
        assert made.status == JobStatus()
        assert store.get(Job, "default", "a", actor=SYSTEM).status == JobStatus()

    @needs("clock")
    def test_the_creation_stamp_is_the_clocks(self, harness: StoreHarness) -> None:
        with opened(harness, clock=VirtualClock(1000.0)) as store:
            assert store.create(job("a"), actor=SYSTEM).metadata.created == 1000.0

    def test_a_key_is_taken_once_per_kind_and_namespace(self, store: Store) -> None:
        store.create(job("a"), actor=SYSTEM)
        with pytest.raises(Exists, match="a"):
            store.create(job("a"), actor=SYSTEM)
        store.create(job("a", "other"), actor=SYSTEM)
        store.create(Queue(metadata=Metadata(name="a")), actor=SYSTEM)

    def test_a_name_used_again_is_another_object(self, store: Store) -> None:
        first = store.create(job("a"), actor=SYSTEM)
        store.delete(JOB, "default", "a", actor=SYSTEM)
        second = store.create(job("a"), actor=SYSTEM)
        assert second.metadata.uid != first.metadata.uid
        assert second.metadata.resource_version != first.metadata.resource_version
        with pytest.raises(NotFound):
            store.update(first, actor=SYSTEM)
        with pytest.raises(NotFound):
            store.delete(JOB, "default", "a", actor=SYSTEM, uid=first.metadata.uid)
        assert store.get(Job, "default", "a", actor=SYSTEM) == second

    def test_what_is_cluster_wide_has_no_namespace(self, store: Store) -> None:
        made = store.create(Queue(metadata=Metadata(name="q")), actor=SYSTEM)
        assert made.key == ("", "q")
        assert store.get(Queue, "", "q", actor=SYSTEM) == made
        assert store.get(Queue, "default", "q", actor=SYSTEM) == made
        assert len(store.list(QUEUE, actor=SYSTEM, namespace="team-a").records) == 1

    def test_what_could_not_be_read_back_is_refused(self, store: Store) -> None:
        for bad in ("No Spaces", "-a", "a" * 64, "", "a\n", "a\0", "\u00e9", "\ud800"):
            with pytest.raises(Invalid):
                store.create(job(bad), actor=SYSTEM)
        with pytest.raises(Invalid):
            store.create(job("a", labels={"x": "\ud800"}), actor=SYSTEM)
        with pytest.raises(Invalid):
            store.create(job("a", ""), actor=SYSTEM)
        assert store.list(JOB, actor=SYSTEM).records == ()

    def test_there_is_none(self, store: Store) -> None:
        with pytest.raises(NotFound, match="default/a"):
            store.get(Job, "default", "a", actor=SYSTEM)
        with pytest.raises(NotFound):
            store.record(JOB, "default", "a", actor=SYSTEM)
        with pytest.raises(NotFound):
            store.update(job("a"), actor=SYSTEM)

    def test_update_replaces_what_people_own(self, store: Store) -> None:
        made = store.create(job("a", labels={"x": "1", "y": "2"}, annotations={"n": "1"}), actor=SYSTEM)
        wanted = edited(made, labels={"x": "3"}, annotations={}, finalizers=("me",))
        updated = store.update(wanted, actor=ALICE)
        assert updated.metadata.labels == {"x": "3"}
        assert updated.metadata.annotations == {}
        assert updated.metadata.finalizers == ("me",)
        assert updated.metadata.resource_version != made.metadata.resource_version
        assert store.get(Job, "default", "a", actor=SYSTEM) == updated

    def test_a_change_of_spec_raises_the_generation_and_nothing_else_does(self, store: Store) -> None:
        made = store.create(job("a"), actor=SYSTEM)
        labelled = store.update(edited(made, labels={"x": "1"}), actor=SYSTEM)
        assert labelled.metadata.generation == 1
        suspended = store.update(respecified(labelled, suspend=True), actor=SYSTEM)
        assert suspended.metadata.generation == 2
        assert suspended.spec.suspend
        store.patch_status(
            JOB, "default", "a", actor=SYSTEM, writer="job", uid=made.metadata.uid, counter=0,
            fields={"phase": "Suspended"},
        )  # fmt: skip
        assert store.get(Job, "default", "a", actor=SYSTEM).metadata.generation == 2

    def test_update_needs_the_version_that_was_read(self, store: Store) -> None:
        made = store.create(job("a"), actor=SYSTEM)
        newer = store.update(edited(made, labels={"x": "1"}), actor=SYSTEM)
        for version in (made.metadata.resource_version, "", "nonsense"):
            stale = edited(made, labels={"x": "2"}, resource_version=version)
            with pytest.raises(Conflict):
                store.update(stale, actor=SYSTEM)
        assert store.get(Job, "default", "a", actor=SYSTEM) == newer

    def test_update_leaves_the_status_and_what_is_immutable(self, store: Store) -> None:
        made = store.create(job("a"), actor=ALICE)
        record = store.patch_status(
            JOB, "default", "a", actor=SYSTEM, writer="job", uid=made.metadata.uid, counter=0,
            fields={"phase": "Running"},
        )  # fmt: skip
        forged = edited(
            record.object,
            labels={"x": "1"},
            generation=70,
            created=1.0,
            deleted=1.0,
            submitter="mallory",
        )
        forged = msgspec.structs.replace(forged, status=JobStatus(phase="Failed"))
        updated = store.update(forged, actor=SYSTEM)
        assert updated.status.phase == "Running"
        metadata = updated.metadata
        assert (metadata.uid, metadata.created) == (made.metadata.uid, made.metadata.created)
        assert (metadata.generation, metadata.deleted, metadata.submitter) == (1, 0.0, "alice")
        assert metadata.labels == {"x": "1"}

    def test_an_update_that_changes_nothing_is_none(self, store: Store) -> None:
        made = store.create(job("a", labels={"x": "1"}), actor=SYSTEM)
        watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
        assert store.update(made, actor=SYSTEM) == made
        explicit = respecified(made, suspend=False, priority=0)
        assert store.update(explicit, actor=SYSTEM) == made
        store.create(job("b"), actor=SYSTEM)
        (event,) = collect(watch, 1)
        assert event.record is not None
        assert event.record.object.metadata.name == "b"
        watch.close()

    def test_an_invalid_update_is_refused(self, store: Store) -> None:
        made = store.create(job("a"), actor=SYSTEM)
        with pytest.raises(Invalid):
            store.update(respecified(made, queue="No Queue"), actor=SYSTEM)
        assert store.get(Job, "default", "a", actor=SYSTEM) == made

    def test_fields_of_a_newer_version_are_kept(self, store: Store) -> None:
        spec = NewerSpec(roles=(Role(command=("true",)),), colour="green")
        newer = store.create(NewerJob(metadata=Metadata(name="a"), spec=spec), actor=SYSTEM)
        assert newer.spec.colour == "green"
        older = store.get(Job, "default", "a", actor=SYSTEM)
        updated = store.update(respecified(older, suspend=True), actor=SYSTEM)
        assert type(updated) is Job
        assert document(store, "a")["spec"]["colour"] == "green"
        again = store.get(NewerJob, "default", "a", actor=SYSTEM)
        assert (again.spec.colour, again.spec.suspend) == ("green", True)
        cleared = msgspec.structs.replace(again, spec=msgspec.structs.replace(again.spec, colour=""))
        store.update(cleared, actor=SYSTEM)
        assert "colour" not in document(store, "a")["spec"]

    def test_an_update_that_leaves_out_only_what_it_does_not_know_changes_nothing(
        self, store: Store
    ) -> None:
        spec = NewerSpec(roles=(Role(command=("true",)),), colour="green")
        newer = store.create(NewerJob(metadata=Metadata(name="a"), spec=spec), actor=SYSTEM)
        older = store.get(Job, "default", "a", actor=SYSTEM)
        same = store.update(older, actor=SYSTEM)
        assert same.metadata.resource_version == newer.metadata.resource_version
        assert same.metadata.generation == 1


def edited(obj: Job, **metadata: object) -> Job:
    """The job with other metadata."""
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, **metadata))


def respecified(obj: Job, **spec: object) -> Job:
    """The job with another spec."""
    return msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, **spec))
