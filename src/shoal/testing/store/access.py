"""Access: every call names its actor, and `authorise` runs before anything is read or changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shoal.objects.errors import Forbidden
from shoal.objects.job import Job
from shoal.objects.kinds import JOB, QUEUE, Kind
from shoal.objects.meta import Metadata
from shoal.objects.queue import Queue
from shoal.store.base import SYSTEM, Actor, Lease, Store, Verb
from shoal.testing.store.harness import (
    ALICE,
    Rules,
    StoreHarness,
    everything,
    job,
    needs,
    opened,
    start_of,
)
from shoal.testing.store.writes import edited

__all__ = ["AccessRules"]


class Gate:
    """Lets the system through, remembers what others ask for, and refuses them."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, str, str]] = []

    def __call__(self, actor: Actor, verb: Verb, kind: Kind, namespace: str, name: str) -> None:
        if actor != SYSTEM:
            self.asked.append((actor.name, verb, kind.name, namespace, name))
            raise Forbidden("not you")


class AccessRules(Rules):
    """Rules of actors."""

    @needs("authorise")
    def test_every_call_is_asked_for_first(self, harness: StoreHarness) -> None:
        gate = Gate()
        with opened(harness, authorise=gate) as store:
            made = store.create(job("a", "team"), actor=SYSTEM)
            queue = store.create(Queue(metadata=Metadata(name="q")), actor=SYSTEM)
            lease = store.acquire("leader", "h", 15.0, actor=SYSTEM)
            before = everything(store), everything(store, QUEUE)
            for wanted, call in calls(store, made, queue, lease).items():
                with pytest.raises(Forbidden):
                    call()
                assert gate.asked == [("alice", *wanted)]
                gate.asked.clear()
            assert (everything(store), everything(store, QUEUE)) == before

    @needs("authorise")
    def test_who_may_not_is_not_told_what_there_is(self, harness: StoreHarness) -> None:
        with opened(harness, authorise=Gate()) as store:
            for name in ("there", "not-there"):
                if name == "there":
                    store.create(job(name), actor=SYSTEM)
                with pytest.raises(Forbidden):
                    store.get(Job, "default", name, actor=ALICE)
                with pytest.raises(Forbidden):
                    store.delete(JOB, "default", name, actor=ALICE)

    def test_an_actor_limited_to_a_job_reads_that_job_alone(self, store: Store) -> None:
        """The default, where no other `authorise` was given."""
        made = store.create(job("mine", "team"), actor=SYSTEM)
        store.create(job("other", "team"), actor=SYSTEM)
        task = Actor("task", job=("team", "mine", made.metadata.uid))
        assert store.get(Job, "team", "mine", actor=task) == made
        for call in (
            lambda: store.get(Job, "team", "other", actor=task),
            lambda: store.get(Job, "default", "mine", actor=task),
            lambda: store.list(JOB, actor=task),
            lambda: store.list(JOB, actor=task, namespace="team"),
            lambda: store.delete(JOB, "team", "mine", actor=task),
            lambda: store.create(job("new", "team"), actor=task),
            lambda: store.watch(JOB, actor=task, version=start_of(store)),
            lambda: store.acquire("leader", "task", 15.0, actor=task),
        ):
            with pytest.raises(Forbidden):
                call()


def calls(
    store: Store, made: Job, queue: Queue, lease: Lease | None
) -> dict[tuple[str, str, str, str], Callable[[], object]]:
    """Expected arguments of `authorise` (verb, kind, namespace, name), and alice's call with them."""
    assert lease is not None
    uid = made.metadata.uid

    def patch() -> object:
        return store.patch_status(
            JOB, "team", "a", actor=ALICE, writer="job", uid=uid, counter=0, fields={"phase": "Failed"}
        )

    version = start_of(store)
    return {
        ("create", "Job", "team", "b"): lambda: store.create(job("b", "team"), actor=ALICE),
        ("create", "Queue", "", "r"): lambda: store.create(
            Queue(metadata=Metadata(name="r")), actor=ALICE
        ),
        ("get", "Job", "team", "a"): lambda: store.get(Job, "team", "a", actor=ALICE),
        ("get", "Queue", "", "q"): lambda: store.record(QUEUE, "", "q", actor=ALICE),
        ("list", "Job", "", ""): lambda: store.list(JOB, actor=ALICE),
        ("list", "Job", "team", ""): lambda: store.list(JOB, actor=ALICE, namespace="team"),
        ("update", "Job", "team", "a"): lambda: store.update(
            edited(made, labels={"x": "1"}), actor=ALICE
        ),
        ("update", "Queue", "", "q"): lambda: store.update(queue, actor=ALICE),
        ("patch_status", "Job", "team", "a"): patch,
        ("delete", "Job", "team", "a"): lambda: store.delete(JOB, "team", "a", actor=ALICE),
        ("watch", "Job", "", ""): lambda: store.watch(JOB, actor=ALICE, version=version),
        ("watch", "Job", "team", ""): lambda: store.watch(
            JOB, actor=ALICE, version=version, namespace="team"
        ),
        ("lease", "Lease", "", "x"): lambda: store.acquire("x", "h", 1.0, actor=ALICE),
        ("lease", "Lease", "", "leader"): lambda: store.release(lease, actor=ALICE),
    }
