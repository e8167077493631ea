"""Documents are canonical: equal objects, equal bytes."""

from __future__ import annotations

import msgspec
import pytest

from shoal.objects import codec
from shoal.objects.job import Gang, Job, JobSpec, Limits, Resources, Restart, Role, Toleration
from shoal.objects.meta import Metadata
from shoal.objects.quantities import Bytes, CpuMillis, Seconds

VERBOSE = b"""{"apiVersion": "shoal.dev/v1alpha1", "kind": "Job",
 "metadata": {"name": "a", "labels": {}},
 "spec": {"roles": [{"name": "worker", "replicas": 1, "resources": {"cpu": "1000m", "memory": "2048Mi"},
   "env": {}, "tolerations": [{"key": ""}]}], "limits": {"wallTime": 5400}, "gang": {},
   "restart": {"backoff": "1000ms", "policy": "OnFailure"}, "queue": "default", "gracePeriod": "30s"},
 "status": {}}"""


def test_defaults_spelt_out_in_any_way_are_left_out() -> None:
    spec = JobSpec(
        roles=(
            Role(
                resources=Resources(cpu=CpuMillis(1000), memory=Bytes(2**31)),
                tolerations=(Toleration(),),
            ),
        ),
        limits=Limits(wall_time=Seconds(5400)),
        gang=Gang(),
        restart=Restart(backoff=Seconds(1)),
    )
    built = codec.encode(Job(metadata=Metadata(name="a"), spec=spec))
    read = codec.encode(codec.decode(VERBOSE, Job))
    assert read == built
    assert b'"spec":{"roles":[{"resources":{"memory":"2Gi"},"tolerations":[{}]}],' in built
    assert b'"limits":{"wallTime":"1h30m"}}' in built
    assert codec.encode(codec.decode(built, Job)) == built


def test_plain_values_are_what_the_document_says() -> None:
    job = codec.decode(VERBOSE, Job)
    assert codec.builtins(job) == msgspec.json.decode(codec.encode(job))
    assert codec.convert(codec.builtins(job), Job) == job


def test_canonical_leaves_a_canonical_value_alone() -> None:
    job = codec.canonical(codec.decode(VERBOSE, Job))
    assert codec.canonical(job) is job
    parts = ({"a": Limits()}, [Limits(), 1])
    assert codec.canonical(parts) == parts


def test_a_wrong_value_names_its_path() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.spec\.limits\.wallTime"):
        codec.decode(VERBOSE.replace(b"5400", b'"soon"'), Job)
    with pytest.raises(NotImplementedError, match="has no place on the wire"):
        codec.encode(object())
