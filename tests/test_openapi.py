from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tools import openapi

CHECKED_IN = Path(__file__).parents[1] / "docs" / "openapi.json"


@pytest.mark.slow
def test_the_document_is_the_one_checked_in() -> None:
    """If a change is meant: python -m tools.openapi > docs/openapi.json"""
    assert CHECKED_IN.read_text() == openapi.text()


def document() -> dict[str, Any]:
    return json.loads(CHECKED_IN.read_text())


def test_every_operation_says_what_it_does() -> None:
    operations = [op for path in document()["paths"].values() for op in path.values()]
    names = [op["operationId"] for op in operations]
    assert len(names) == len(set(names))
    for operation in operations:
        assert operation["description"], operation["operationId"]
        assert "default" in operation["responses"]


def test_every_reference_leads_somewhere() -> None:
    made = document()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            target = node.get("$ref")
            if isinstance(target, str):
                where: Any = made
                for part in target.removeprefix("#/").split("/"):
                    where = where[part]
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(made)
    assert {"Job", "Queue", "Node", "List", "Problem"} <= made["components"]["schemas"].keys()


def test_paths_are_what_the_client_calls() -> None:
    paths = document()["paths"]
    for path in (
        "/api/v1/namespaces/{namespace}/{plural}/{name}",
        "/api/v1/{plural}",
        "/api/v1/namespaces/{namespace}/jobs/{name}/logs",
        "/api/v1/namespaces/{namespace}/jobs/{name}/exec",
        "/api/v1/events",
        "/version",
        "/readyz",
    ):
        assert path in paths
