"""Status patches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from shoal.objects.errors import Conflict, Forbidden, Invalid, NotFound
from shoal.objects.job import Allocation, Job, Scheduling, Slots
from shoal.objects.kinds import JOB
from shoal.store.base import SYSTEM, Record, Store
from shoal.testing.store.harness import Rules, collect, document, job, start_of

__all__ = ["StatusRules"]


class StatusRules(Rules):
    """Rules of `patch_status`."""

    def test_a_patch_sets_the_fields_it_names(self, store: Store) -> None:
        made = store.create(job("a"), actor=SYSTEM)
        record = patch(store, made, 0, {"phase": "Starting", "attempt": 1})
        status = record.object.status
        assert (status.phase, status.attempt, status.writers) == ("Starting", 1, {"job": 1})
        status = patch(store, made, 1, {"phase": "Running"}).object.status
        assert (status.phase, status.attempt, status.writers) == ("Running", 1, {"job": 2})
        assert store.get(Job, "default", "a", actor=SYSTEM).status == status

    def test_two_writers_never_overwrite_each_other(self, store: Store) -> None:
        made = store.create(job("a"), actor=SYSTEM)
        slots = (Slots(role="worker", indices="0", node="n1"),)
        patch(store, made, 0, {"phase": "Starting"})
        patch(store, made, 0, {"allocation": Allocation(id=1, slots=slots)}, writer="scheduler")
        patch(store, made, 1, {"phase": "Running"})
        status = store.get(Job, "default", "a", actor=SYSTEM).status
        assert (status.phase, status.allocation.slots) == ("Running", slots)
        assert status.writers == {"job": 2, "scheduler": 1}

    def test_fields_of_others_are_refused(self, store: Store) -> None:
        made = store.create(job("a"), actor=SYSTEM)
        attempts: tuple[tuple[str, dict[str, Any]], ...] = (
            ("scheduler", {"phase": "Failed"}),
            ("job", {"phase": "Running", "allocation": {}}),
            ("job", {"writers": {"job": 7}}),
            ("nobody", {"phase": "Failed"}),
            ("scheduler", {"phase": None}),
        )
        for writer, fields in attempts:
            with pytest.raises(Forbidden):
                patch(store, made, 0, fields, writer=writer)
        assert store.get(Job, "default", "a", actor=SYSTEM) == made

    def test_a_patch_needs_its_writers_own_counter(self, store: Store) -> None:
        made = store.create(job("a"), actor=SYSTEM)
        patch(store, made, 0, {"phase": "Starting"})
        for counter in (0, 2, -1):
            with pytest.raises(Conflict):
                patch(store, made, counter, {"phase": "Failed"})
        assert store.get(Job, "default", "a", actor=SYSTEM).status.phase == "Starting"

    def test_a_patch_needs_the_uid(self, store: Store) -> None:
        made = store.create(job("a"), actor=SYSTEM)
        store.delete(JOB, "default", "a", actor=SYSTEM)
        with pytest.raises(NotFound):
            patch(store, made, 0, {"phase": "Failed"})
        store.create(job("a"), actor=SYSTEM)
        with pytest.raises(NotFound):
            patch(store, made, 0, {"phase": "Failed"})

    def test_a_patch_needs_the_generation_when_it_names_one(self, store: Store) -> None:
        made = store.create(job("a"), actor=SYSTEM)
        spec = msgspec.structs.replace(made.spec, suspend=True)
        store.update(msgspec.structs.replace(made, spec=spec), actor=SYSTEM)
        with pytest.raises(Conflict):
            patch(store, made, 0, {"phase": "Running"}, generation=1)
        patch(store, made, 0, {"phase": "Suspended"}, generation=2)
        patch(store, made, 1, {"reason": "Asked"})

    def test_a_patch_leaves_the_spec_and_gives_a_new_version(self, store: Store) -> None:
        made = store.create(job("a", labels={"x": "1"}), actor=SYSTEM)
        after = patch(store, made, 0, {"phase": "Running"}).object
        assert (after.spec, after.metadata.labels) == (made.spec, made.metadata.labels)
        assert after.metadata.resource_version != made.metadata.resource_version
        stale = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, suspend=True))
        with pytest.raises(Conflict):
            store.update(stale, actor=SYSTEM)

    def test_none_removes_a_field(self, store: Store) -> None:
        made = store.create(job("a"), actor=SYSTEM)
        patch(store, made, 0, {"exitCode": 3, "message": "It failed."})
        status = patch(store, made, 1, {"exitCode": None}).object.status
        assert (status.exit_code, status.message) == (None, "It failed.")
        assert "exitCode" not in document(store, "a")["status"]

    def test_a_patch_that_changes_nothing_is_none(self, store: Store) -> None:
        made = store.create(job("a"), actor=SYSTEM)
        first = patch(store, made, 0, {"phase": "Running"})
        watch = store.watch(JOB, actor=SYSTEM, version=start_of(store))
        again: tuple[Mapping[str, Any], ...] = (
            {"phase": "Running"},
            {"phase": "Running", "message": "", "exitCode": None},
            {"conditions": (), "roles": []},
            {},
        )
        for fields in again:
            assert patch(store, made, 1, fields).document == first.document
        assert patch(store, made, 0, {"scheduling": Scheduling()}, writer="scheduler") == first
        with pytest.raises(Conflict):
            patch(store, made, 0, {"phase": "Running"})
        store.create(job("b"), actor=SYSTEM)
        assert [event.type for event in collect(watch, 1)] == ["Added"]
        watch.close()

    def test_a_patch_that_could_not_be_read_back_is_refused(self, store: Store) -> None:
        made = store.create(job("a"), actor=SYSTEM)
        for fields in ({"phase": "Dancing"}, {"attempt": "one"}, {"message": "\ud800"}):
            with pytest.raises(Invalid):
                patch(store, made, 0, fields)
        assert store.get(Job, "default", "a", actor=SYSTEM) == made

    def test_a_patch_keeps_fields_of_a_newer_version(self, store: Store) -> None:
        made = store.create(job("a"), actor=SYSTEM)
        newer = {"id": 1, "colour": "green", "slots": [{"role": "w", "indices": "0", "node": "n"}]}
        patch(store, made, 0, {"allocation": newer}, writer="scheduler")
        patch(store, made, 0, {"phase": "Starting", "mood": "good"})
        patch(store, made, 1, {"phase": "Running"})
        patch(store, made, 1, {"allocation": Allocation(id=2)}, writer="scheduler")
        status = document(store, "a")["status"]
        assert status["mood"] == "good"
        assert status["allocation"] == {"id": 2, "colour": "green"}
        assert store.get(Job, "default", "a", actor=SYSTEM).status.allocation == Allocation(id=2)


def patch(
    store: Store,
    made: Job,
    counter: int,
    fields: Mapping[str, Any],
    *,
    writer: str = "job",
    generation: int | None = None,
) -> Record:
    """A patch of the job's status."""
    return store.patch_status(
        JOB,
        made.metadata.namespace,
        made.metadata.name,
        actor=SYSTEM,
        writer=writer,
        uid=made.metadata.uid,
        counter=counter,
        fields=fields,
        generation=generation,
    )
