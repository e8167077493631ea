"""What controllers create passes admission, and counts for the person who made the owner."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

import shoal.control
from shoal.admission.admission import Admission
from shoal.cluster.simulated import Script
from shoal.control.cache import ObjectCache
from shoal.objects.errors import Conflict, Forbidden, Invalid, NotFound
from shoal.objects.job import Job, Resources, Role
from shoal.objects.kinds import JOB
from shoal.objects.meta import Metadata
from shoal.objects.quantities import CpuMillis
from shoal.objects.queue import Queue, QueueSpec, Quota
from shoal.store.base import SYSTEM, Actor, Store, allow_all
from shoal.store.memory import MemoryStore
from shoal.testing.clock import VirtualClock
from shoal.testing.plane import Plane, capacity
from tests.server.harness import a_job

ALICE = Actor("alice", ("user",))


def queue(name: str = "default", **spec: object) -> Queue:
    return Queue(metadata=Metadata(name=name, namespace=""), spec=QueueSpec(**spec))  # type: ignore[arg-type]


@pytest.fixture
def store() -> Store:
    made = MemoryStore()
    made.create(queue(), actor=SYSTEM)
    return made


@pytest.fixture
def jobs(store: Store) -> ObjectCache[Job]:
    """What a controller creates its jobs through."""
    cache: ObjectCache[Job] = ObjectCache(store, JOB, actor=SYSTEM, clock=VirtualClock())
    cache.sync()
    return cache


def of_alice(store: Store, **spec: object) -> Job:
    return Admission(store, authorise=allow_all).create(a_job("study", **spec), actor=ALICE)


def test_a_child_is_complete_and_of_its_owners_submitter(store: Store, jobs: ObjectCache[Job]) -> None:
    owner = of_alice(store)
    role = Role(command=("python", "train.py"), replicas=4, min_replicas=1)
    made = jobs.create(a_job("trial", roles=(role,), runtime="elastic"), owner=owner)
    assert [each.name for each in made.spec.roles] == ["worker", "coordinator"]
    assert (made.metadata.submitter, made.user) == ("alice", "alice")
    assert [each.uid for each in made.metadata.owners] == [owner.metadata.uid]
    assert jobs.owned_by(owner.metadata.uid) == [made]
    assert store.get(Job, "default", "trial", actor=SYSTEM) == made


def test_children_are_deleted_with_their_owner(store: Store, jobs: ObjectCache[Job]) -> None:
    owner = of_alice(store)
    for name in ("b", "a"):
        jobs.create(a_job(name), owner=owner)
    jobs.create(a_job("apart"))
    assert [job.metadata.name for job in jobs.owned_by(owner.metadata.uid)] == ["a", "b"]
    store.delete(JOB, "default", "study", actor=SYSTEM)
    jobs.sync()
    assert jobs.owned_by(owner.metadata.uid) == []
    assert [job.metadata.name for job in jobs.all()] == ["apart"]
    with pytest.raises(Conflict):
        jobs.create(a_job("late"), owner=owner)


def test_a_child_changes_its_owner(store: Store, jobs: ObjectCache[Job]) -> None:
    first = of_alice(store)
    made = jobs.create(a_job("trial"), owner=first)
    metadata = msgspec.structs.replace(made.metadata, owners=())
    jobs.update(msgspec.structs.replace(made, metadata=metadata))
    assert jobs.owned_by(first.metadata.uid) == []


def test_a_child_has_its_submitters_rights_in_queues(store: Store, jobs: ObjectCache[Job]) -> None:
    store.create(queue("closed", namespaces=("production",)), actor=SYSTEM)
    store.create(queue("low", highest_priority={"*": "experiment"}), actor=SYSTEM)
    store.create(queue("small", quota=Quota(gpu=2)), actor=SYSTEM)
    owner = of_alice(store)
    with pytest.raises(Forbidden, match="queue closed is not for namespace default"):
        jobs.create(a_job("a", queue="closed"), owner=owner)
    with pytest.raises(Forbidden, match="at most priority experiment"):
        jobs.create(a_job("b", queue="low", priority="production"), owner=owner)
    role = Role(command=("a",), replicas=3, resources=Resources(gpu=1))
    with pytest.raises(Forbidden, match="asks for 3 GPUs at least, and queue small may use 2") as caught:
        jobs.create(a_job("c", queue="small", roles=(role,)), owner=owner)
    assert caught.value.hint == "it is made by job/study, of alice"
    with pytest.raises(Invalid, match="there is no queue smal"):
        jobs.create(a_job("d", queue="smal"), owner=owner)
    with pytest.raises(Invalid, match="two roles are called worker"):
        jobs.create(a_job("e", roles=(Role(command=("a",)), Role(command=("b",)))), owner=owner)
    jobs.sync()
    assert [job.metadata.name for job in jobs.all()] == ["study"]


def test_a_child_is_in_its_owners_namespace(store: Store, jobs: ObjectCache[Job]) -> None:
    with pytest.raises(Invalid, match="job/study is of namespace default"):
        jobs.create(a_job("trial", "team-b"), owner=of_alice(store))


def test_an_owner_that_is_being_deleted_takes_no_child(store: Store, jobs: ObjectCache[Job]) -> None:
    owner = of_alice(store)
    held = msgspec.structs.replace(owner.metadata, finalizers=("test",))
    store.update(msgspec.structs.replace(owner, metadata=held), actor=SYSTEM)
    store.delete(JOB, "default", "study", actor=SYSTEM)
    owner = store.get(Job, "default", "study", actor=SYSTEM)
    with pytest.raises(Conflict, match="job/study is being deleted"):
        jobs.create(a_job("trial"), owner=owner)
    with pytest.raises(NotFound):
        store.get(Job, "default", "trial", actor=SYSTEM)


def test_a_child_counts_for_its_owners_user(store: Store, jobs: ObjectCache[Job]) -> None:
    """Also where a manager has submitted the owner for somebody else."""
    manager = Actor("carol", (), bindings=(("default", "manager"),))
    owner = Admission(store, authorise=allow_all).create(a_job("study", user="bob"), actor=manager)
    made = jobs.create(a_job("trial"), owner=owner)
    assert (made.metadata.submitter, made.user) == ("carol", "bob")
    with pytest.raises(Forbidden, match="the jobs of job/study count for bob"):
        jobs.create(a_job("other", user="dave"), owner=owner)


def test_a_users_limit_holds_for_the_children_too() -> None:
    """One user may run two jobs: the second child waits while the owner and the first run."""
    plane = Plane({"n0": capacity(8)}, lambda spec: Script())
    limited = plane.store.get(Queue, "", "default", actor=SYSTEM)
    spec = QueueSpec(user_limit=Quota(jobs=2))
    plane.store.update(msgspec.structs.replace(limited, spec=spec), actor=SYSTEM)
    admission = Admission(plane.store, authorise=allow_all)
    small = (Role(command=("a",), resources=Resources(cpu=CpuMillis(500))),)
    owner = admission.create(a_job("study", roles=small), actor=ALICE)
    plane.advance(2)
    for name in ("t0", "t1"):
        admission.create(a_job(name, roles=small), actor=SYSTEM, owner=owner)
        plane.advance(2)
    admission.create(a_job("bob", roles=small), actor=Actor("bob"))
    plane.advance(2)
    phases = {name: plane.job(name).status.phase for name in ("study", "t0", "t1", "bob")}
    assert phases == {"study": "Running", "t0": "Running", "t1": "Pending", "bob": "Running"}
    assert plane.job("t1").status.scheduling.code == "UserCap"


def test_a_job_counts_for_its_submitter_unless_a_manager_says_otherwise(store: Store) -> None:
    """Three jobs passed a limit of one, each for another user's name."""
    admission = Admission(store, authorise=allow_all)
    with pytest.raises(Forbidden, match="a job of alice cannot count for bob") as caught:
        admission.create(a_job("a", user="bob"), actor=ALICE)
    assert caught.value.hint == "leave spec.user out, or let a manager submit the job"
    elsewhere = Actor("erin", ("user",), bindings=(("team-b", "manager"),))
    with pytest.raises(Forbidden):
        admission.create(a_job("a", user="bob"), actor=elsewhere)
    assert admission.create(a_job("b", user="alice"), actor=ALICE).user == "alice"
    assert admission.create(a_job("c", user="bob"), actor=Actor("root", ("admin",))).user == "bob"


def test_controllers_create_objects_through_admission_alone() -> None:
    """`ObjectCache.create` admits; `Store.create` in a controller would go around it."""
    sources = sorted(Path(shoal.control.__file__).parent.rglob("*.py"))
    assert len(sources) > 10
    around = [path.name for path in sources if re.search(r"store\.create\(", path.read_text())]
    assert around == []
