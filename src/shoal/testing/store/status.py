"""Status patches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from shoal.objects.errors import Conflict, Forbidden, Invalid, NotFound
from shoal.objects.job import Allocation, ArraySpec, Job, Scheduling, Slots
from shoal.objects.kinds import JOB, NODE, QUEUE, Kind
from shoal.objects.meta import Metadata
from shoal.objects.node import Node
from shoal.objects.queue import Queue
from shoal.store.base import SYSTEM, Actor, Record, Store
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

    def test_a_writers_name_is_bound_to_the_actor(self, store: Store) -> None:
        """Otherwise a user could grant slots to a job of their own."""
        made = store.create(job("a"), actor=SYSTEM)
        uid = made.metadata.uid
        slots = {"allocation": Allocation(id=1, slots=(Slots(role="worker", indices="0", node="n1"),))}
        for actor in (
            Actor("alice"),
            Actor("alice", ("admin",)),
            Actor("scheduler", ("user",)),
            Actor("system", ("admin",)),
            Actor("controller:job", ("controller:job",)),
            Actor("job:default/a", ("job",), ("default", "a", uid)),
        ):
            with pytest.raises(Forbidden):
                patch(store, made, 0, slots, writer="scheduler", actor=actor)
        assert store.get(Job, "default", "a", actor=SYSTEM) == made
        controller = Actor("job-controller", ("controller:job",))
        assert patch(store, made, 0, {"phase": "Starting"}, actor=controller).object.status.attempt == 0

    def test_slots_that_cannot_be_are_refused(self, store: Store) -> None:
        """A slot that no reader can make sense of would stop all scheduling."""
        made = store.create(job("a"), actor=SYSTEM)
        for slots, wrong in (
            ([("worker", "zero", "n1")], "[0].indices"),
            ([("worker", "", "n1")], "[0].indices"),
            ([("worker", "4-2", "n1")], "[0].indices"),
            ([("worker", "-1", "n1")], "[0].indices"),
            ([("worker", "99999999", "n1")], "[0].indices"),
            ([("worker", "0", "")], "[0].node"),
            ([("server", "0", "n1")], "[0].role"),
            ([("worker", "0-2", "n1"), ("worker", "2", "n2")], "[1].indices"),
            ([("worker", "0", "n1"), ("worker", "0", "n1")], "[1].indices"),
            ([("worker", "0-1", "n1", "a")], "[0].devices"),
            ([("worker", "0", "n1", "a"), ("worker", "1", "n1", "a")], "[1].devices"),
        ):
            given = [
                {"role": role, "indices": indices, "node": node, "devices": devices}
                for role, indices, node, *devices in slots
            ]
            for place in ("allocation.slots", "scheduling.reserved", "scheduling.place"):
                field, name = place.split(".")
                with pytest.raises(Invalid, match=re.escape(f"status.{place}{wrong}")):
                    patch(store, made, 0, {field: {name: given}}, writer="scheduler")
        assert store.get(Job, "default", "a", actor=SYSTEM) == made

    def test_values_that_cannot_be_are_refused(self, store: Store) -> None:
        made = store.create(job("a"), actor=SYSTEM)
        refusal = {"allocation": -1, "node": "n", "reason": "x", "at": 1}
        attempts: tuple[tuple[str, dict[str, Any], str], ...] = (
            ("job", {"attempt": -1}, "attempt"),
            ("job", {"attempt": 2**60}, "attempt"),
            ("job", {"started": -0.5}, "started"),
            ("job", {"exitCode": 256}, "exitCode"),
            ("job", {"exitCode": -2}, "exitCode"),
            ("job", {"nodeTime": {"nodes": -1}}, "nodeTime.nodes"),
            ("job", {"refusal": refusal}, "refusal.allocation"),
            ("job", {"roles": [{"name": "server"}]}, "roles[0].name"),
            ("job", {"roles": [{"name": "worker"}, {"name": "worker"}]}, "roles[1]"),
            ("job", {"roles": [{"name": "worker", "running": -1}]}, "roles[0].running"),
            ("job", {"roles": [{"name": "worker", "nodes": "x"}]}, "roles[0].nodes"),
            ("job", {"roles": [{"name": "worker", "incarnations": "0=a"}]}, "roles[0].incarnations"),
            ("job", {"roles": [{"name": "worker", "incarnations": "3-1=1"}]}, "roles[0].incarnations"),
            ("job", {"roles": [{"name": "worker", "outcomes": "0=Great"}]}, "roles[0].outcomes"),
            ("scheduler", {"allocation": {"id": -1}}, "allocation.id"),
            ("scheduler", {"allocation": {"served": -1.0}}, "allocation.served"),
            ("scheduler", {"scheduling": {"promised": -1.0}}, "scheduling.promised"),
            ("elastic", {"elastic": {"world": -1}}, "elastic.world"),
        )
        for writer, fields, wrong in attempts:
            with pytest.raises(Invalid, match=re.escape(f"status.{wrong}: ")):
                patch(store, made, 0, fields, writer=writer)
        assert store.get(Job, "default", "a", actor=SYSTEM) == made

    def test_a_goodput_above_one_is_accepted(self, store: Store) -> None:
        """It is measured against the median step, so the mean may be better."""
        made = store.create(job("a"), actor=SYSTEM)
        patch(store, made, 0, {"elastic": {"goodput": 1.5}}, writer="elastic")
        kept = store.get(Job, "default", "a", actor=SYSTEM).status.elastic
        assert kept is not None and kept.goodput == 1.5

    def test_the_status_of_nodes_and_queues_is_checked_too(self, store: Store) -> None:
        node = store.create(Node(metadata=Metadata(name="n", namespace="")), actor=SYSTEM)
        queue = store.create(Queue(metadata=Metadata(name="q", namespace="")), actor=SYSTEM)
        attempts: tuple[tuple[Kind, Node | Queue, dict[str, Any], str], ...] = (
            (NODE, node, {"capacity": {"gpus": ["a", "a"]}}, "status.capacity.gpus[1]"),
            (NODE, node, {"seen": -1}, "status.seen"),
            (QUEUE, queue, {"running": -1}, "status.running"),
            (QUEUE, queue, {"spent": {"year": -2.0}}, "status.spent.year"),
            (QUEUE, queue, {"usage": {"gpu": -0.5}}, "status.usage.gpu"),
        )
        for kind, made, fields, wrong in attempts:
            with pytest.raises(Invalid, match=re.escape(wrong)):
                store.patch_status(
                    kind, "", made.metadata.name, actor=SYSTEM, writer=kind.name.lower(),
                    uid=made.metadata.uid, counter=0, fields=fields,
                )  # fmt: skip

    def test_an_array_has_slots_for_its_own_indices(self, store: Store) -> None:
        made = job("a")
        array = ArraySpec(indices="200000-200009")
        made = store.create(
            msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, array=array)),
            actor=SYSTEM,
        )
        slot = {"role": "worker", "indices": "200000-200001", "node": "n1"}
        patch(store, made, 0, {"allocation": {"slots": [slot]}}, writer="scheduler")
        slot["indices"] = "0"
        with pytest.raises(Invalid, match="no task of index 0"):
            patch(store, made, 1, {"allocation": {"slots": [slot]}}, writer="scheduler")

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
        newer = {"id": 1, "colour": "green", "slots": [{"role": "worker", "indices": "0", "node": "n"}]}
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
    actor: Actor = SYSTEM,
) -> Record:
    """A patch of the job's status."""
    return store.patch_status(
        JOB,
        made.metadata.namespace,
        made.metadata.name,
        actor=actor,
        writer=writer,
        uid=made.metadata.uid,
        counter=counter,
        fields=fields,
        generation=generation,
    )
