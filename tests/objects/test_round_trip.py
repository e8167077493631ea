"""Any valid object survives admission, JSON and YAML, and its schema admits it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.objects import codec
from shoal.objects.admit import admit, check_update
from shoal.objects.job import Job
from shoal.objects.kinds import kind_of
from shoal.objects.meta import Object
from shoal.objects.schema import editor_schema, openapi_schema
from shoal.objects.yaml import load_objects, to_yaml
from tests.support import strategies

objects = st.one_of(strategies.jobs(), strategies.queues(), strategies.nodes())
patient = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.slow
@patient
@given(objects)
def test_an_object_survives_its_document_admission_and_yaml(obj: Object) -> None:
    kind = kind_of(obj)
    document = codec.encode(obj)
    assert codec.decode(document, kind.struct) == obj
    assert codec.encode(codec.decode(document, kind.struct)) == document
    assert admit(codec.builtins(obj)) == obj
    assert load_objects(to_yaml(obj), "test") == [obj]
    check_update(obj, obj)


@pytest.mark.slow
@patient
@given(objects)
def test_the_schemas_admit_it(obj: Object) -> None:
    kind = kind_of(obj)
    for schema in (openapi_schema(kind), editor_schema(kind)):
        assert not list(violations(codec.builtins(obj), schema))


@pytest.mark.slow
@patient
@given(strategies.jobs())
def test_unknown_fields_survive_any_job(job: Job) -> None:
    old = codec.builtins(job)
    old["spec"]["future"] = {"a": 1}
    for role in old["spec"]["roles"]:
        role["future"] = role.get("name", "worker")
    merged = msgspec.json.decode(codec.merge_unknown(msgspec.json.encode(old), codec.encode(job), Job))
    assert merged == old


def violations(value: Any, schema: dict[str, Any], path: str = "") -> list[str]:
    """What JSON Schema, as far as the schemas here use it, has against the value."""
    if "anyOf" in schema:
        if not any(not violations(value, each, path) for each in schema["anyOf"]):
            return [f"{path}: {value!r}"]
    elif not isinstance(value, TYPES[schema["type"]]):
        return [f"{path}: {value!r} is no {schema['type']}"]
    found: list[str] = []
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        found.append(f"{path}: {value!r} against {schema['pattern']}")
    if value not in schema.get("enum", [value]):
        found.append(f"{path}: {value!r} not in {schema['enum']}")
    if isinstance(value, int | float):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        if not low <= value <= high:
            found.append(f"{path}: {value}")
    if isinstance(value, list):
        for at, item in enumerate(value):
            found += violations(item, schema["items"], f"{path}[{at}]")
    if isinstance(value, dict) and "x-kubernetes-preserve-unknown-fields" not in schema:
        properties = schema.get("properties", {})
        if not properties and "additionalProperties" not in schema:
            return found
        found += [f"{path}: no {name}" for name in schema.get("required", []) if name not in value]
        for key, item in value.items():
            inner = properties.get(key, schema.get("additionalProperties"))
            found += violations(item, inner, f"{path}.{key}") if inner else [f"{path}.{key}: unknown"]
    return found


TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
}
