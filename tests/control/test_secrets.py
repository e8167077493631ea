"""A job that names a secret waits for it, holding nothing."""

from __future__ import annotations

import msgspec

from shoal.cluster.simulated import run_for
from shoal.control.scheduler_cache import SECRET_MISSING
from shoal.objects.job import SecretUse
from shoal.objects.kinds import SECRET
from shoal.objects.meta import Metadata
from shoal.objects.secret import Secret, SecretSpec
from shoal.schedule.explain import explain
from shoal.store.base import SYSTEM
from tests.control.world import World, capacity, role


def put(world: World, name: str, *keys: str, namespace: str = "default") -> Secret:
    metadata = Metadata(name=name, namespace=namespace)
    spec = SecretSpec(sealed=dict.fromkeys(keys, "k.x"))
    return world.store.create(Secret(metadata=metadata, spec=spec), actor=SYSTEM)


def test_it_waits_pending_and_lets_others_start() -> None:
    world = World({"a": capacity(2)}, run_for(None))
    world.submit("waits", role(2, secrets=(SecretUse(name="hub", env="HUB"),)))
    world.submit("other", role(1))
    world.run(2)
    job = world.job("waits")
    assert (job.status.phase, world.why("waits")) == ("Pending", SECRET_MISSING)
    assert job.status.scheduling.message == "the job waits: there is no secret hub in namespace default"
    assert not job.status.allocation.slots
    assert world.running("other")
    decisions = [what for name, what, _ in world.diary.decisions if name == "waits"]
    assert decisions == [SECRET_MISSING], "recorded once"


def test_it_starts_when_the_secret_and_its_key_exist() -> None:
    world = World({"a": capacity(2)}, run_for(None))
    world.submit("waits", role(1, secrets=(SecretUse(name="hub", env="HUB"),)))
    put(world, "hub", "value", namespace="elsewhere")
    hub = put(world, "hub", "vlue")
    world.run(2)
    said = world.job("waits").status.scheduling
    assert said.message == "the job waits: key value of secret hub is missing (did you mean vlue?)"
    spec = SecretSpec(sealed={"value": "k.x"})
    hub = world.store.update(msgspec.structs.replace(hub, spec=spec), actor=SYSTEM)
    world.run(2)
    assert world.running("waits") and world.why("waits") == ""
    world.store.delete(SECRET, "default", "hub", actor=SYSTEM)
    world.run(2)
    assert world.running("waits"), "what runs has its value"


def test_the_remedy_keeps_the_other_keys_of_the_secret() -> None:
    world = World({"a": capacity(2)}, run_for(None))
    world.submit("waits", role(1, secrets=(SecretUse(name="hub", key="kk", env="HUB"),)))
    world.run(2)
    evidence = world.job("waits").status.scheduling.evidence
    assert evidence == {"namespace": "default", "secret": "hub", "key": "kk", "exists": False}
    said = explain(SECRET_MISSING, evidence).remedy
    assert said == "it starts once the secret exists: shoal secret create hub --key kk"
    put(world, "hub", "value")
    world.run(2)
    evidence = world.job("waits").status.scheduling.evidence
    assert evidence == {"namespace": "default", "secret": "hub", "key": "kk", "exists": True}
    said = explain(SECRET_MISSING, evidence).remedy
    assert said == "it starts once the key exists: shoal secret set hub --key kk"


def test_a_secret_that_goes_before_the_start_makes_it_wait_again() -> None:
    world = World({"a": capacity(2)}, run_for(None))
    put(world, "hub", "value")
    world.submit("first", role(2))
    world.run(1)
    world.submit("waits", role(1, secrets=(SecretUse(name="hub", env="HUB"),)))
    world.run(1)
    assert world.why("waits") == "NoRoom"
    world.store.delete(SECRET, "default", "hub", actor=SYSTEM)
    world.run(1)
    assert world.why("waits") == SECRET_MISSING
    world.edit("waits", cancelled=True)
    world.run(1)
    assert world.job("waits").status.phase == "Cancelled"
