"""The schemas: structural, described, complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shoal.objects.job import Job, Role
from shoal.objects.kinds import JOB, KINDS, NODE, QUEUE, Kind
from shoal.objects.schema import editor_schema, field_docs, field_paths, openapi_schema, summary

kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from nodes(schema[name], f"{path}[]")


@kinds
def test_the_schema_is_structural(kind: Kind) -> None:
    for path, node in nodes(openapi_schema(kind)):
        union = node.get("x-kubernetes-int-or-string", False)
        assert union != ("type" in node), path
        assert ("anyOf" in node) == union, path
        assert not {"$ref", "oneOf", "allOf", "not"} & set(node), path
        assert not {"properties", "additionalProperties"} <= set(node), path
        assert set(node.get("required", [])) <= set(node.get("properties", {})), path
    assert openapi_schema(kind)["properties"]["metadata"] == {"type": "object"}


@kinds
def test_every_field_that_people_write_is_described(kind: Kind) -> None:
    for schema in (openapi_schema(kind), editor_schema(kind)):
        spec = schema["properties"]["spec"]
        missing = [
            path for path, node in nodes(spec) if not node.get("description") and path[-2:] != "[]"
        ]
        assert missing == []


@kinds
def test_every_leaf_has_a_path(kind: Kind) -> None:
    """Counted again, from the schema rather than from the types."""

    def leaves(node: dict[str, Any], path: str) -> Iterator[str]:
        if node.get("properties"):
            for name, inner in node["properties"].items():
                yield from leaves(inner, f"{path}.{name}")
        elif node.get("items", {}).get("properties"):
            yield from leaves(node["items"], f"{path}[]")
        else:
            yield path

    for part in ("spec", "status"):
        assert list(field_paths(kind, part)) == list(
            leaves(openapi_schema(kind)["properties"][part], part)
        )


def test_paths_read_as_people_write_them() -> None:
    assert {"spec.roles[].resources.cpu", "spec.array.indices", "spec.roles[].env"} <= set(
        field_paths(JOB)
    )
    assert "spec.quota.memory" in field_paths(QUEUE)
    assert "spec.taints[].effect" in field_paths(NODE)
    assert "metadata.labels" in field_paths(JOB, "metadata")


def test_an_editor_is_told_more() -> None:
    schema = editor_schema(JOB)
    assert schema["required"] == ["apiVersion", "kind", "metadata", "spec"]
    assert schema["properties"]["kind"]["enum"] == ["Job"]
    spec = schema["properties"]["spec"]["properties"]
    assert spec["queue"]["default"] == "default"
    assert spec["gracePeriod"]["default"] == "30s"
    assert "default" not in spec["limits"]
    assert schema["additionalProperties"] is False
    cpu = spec["roles"]["items"]["properties"]["resources"]["properties"]["cpu"]
    assert cpu["anyOf"] == [{"type": "number"}, {"type": "string"}]


def test_descriptions_are_the_docstrings() -> None:
    assert field_docs(Role)["min_replicas"] == (
        "Present: elastic, the role may run with as few as this."
    )
    assert summary(Job) == "A workload: roles of tasks, in a queue."
    assert "spec" not in field_docs(Job)
