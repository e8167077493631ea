"""The API's OpenAPI 3.1 document: `python -m tools.openapi` prints it.

Paths and parameters are FastAPI's, from the routes themselves. What it cannot see, because answers are
raw documents, is added here: the schemas of the kinds, which operation takes and gives what, and that
every error is a problem document. `docs/openapi.json` is this document, and a test keeps it so.
"""

from __future__ import annotations

import json
from typing import Any

from shoal.client.wire import FRAMES
from shoal.objects.kinds import KINDS
from shoal.objects.schema import editor_schema
from shoal.server.app import api
from shoal.server.middleware import MEDIA_TYPE

_JSON = "application/json"
_OBJECT = {"oneOf": [{"$ref": f"#/components/schemas/{name}"} for name in KINDS]}
_ANY: dict[str, Any] = {}

_PROBLEM = {
    "type": "object",
    "description": "RFC 9457, and the error itself: `code` decides a client's exit code.",
    "required": ["type", "title", "status", "detail", "code", "message"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "message": {"type": "string", "description": "One sentence."},
        "hint": {"type": "string", "description": "What to do next."},
        "details": {"type": "object"},
    },
}
_LIST = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "items"],
    "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {
            "type": "object",
            "required": ["resourceVersion", "cursor", "remaining"],
            "properties": {
                "resourceVersion": {"type": "string", "description": "Where a watch goes on."},
                "cursor": {"type": "string", "description": "Of the next page; empty on the last."},
                "remaining": {"type": "integer", "description": "Objects behind this page."},
            },
        },
        "items": {"type": "array", "items": _OBJECT},
    },
}
_PATCH = {
    "type": "object",
    "required": ["writer", "uid", "counter", "fields"],
    "properties": {
        "writer": {"type": "string"},
        "uid": {"type": "string"},
        "counter": {"type": "integer"},
        "fields": {"type": "object"},
        "generation": {"type": ["integer", "null"]},
    },
}
_ANSWERS: dict[str, tuple[str, dict[str, Any]]] = {
    "list": (_JSON, {"$ref": "#/components/schemas/List"}),
    "logs": (FRAMES, {"type": "string", "format": "binary"}),
    "resumeLogs": (FRAMES, {"type": "string", "format": "binary"}),
    "exec": (FRAMES, {"type": "string", "format": "binary"}),
    "healthz": ("text/plain", {"type": "string"}),
    "schema": ("application/schema+json", {"type": "object"}),
    **dict.fromkeys(("create", "get", "put", "delete", "patchStatus"), (_JSON, _OBJECT)),
}
_BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "create": (_JSON, _OBJECT),
    "put": (_JSON, _OBJECT),
    "patchStatus": (_JSON, _PATCH),
    "resumeLogs": (_JSON, {"type": "object", "properties": {"positions": {"type": "object"}}}),
    "exec": (FRAMES, {"type": "string", "format": "binary"}),
    "acquireLease": (_JSON, {"type": "object", "required": ["holder", "durationSeconds"]}),
    "releaseLease": (_JSON, {"type": "object"}),
    "putElastic": (_JSON, {"type": "object", "required": ["version", "record"]}),
    "reportElastic": (_JSON, {"type": "object", "required": ["world", "step"]}),
    "reportMetrics": (
        _JSON,
        {"type": "object", "required": ["role", "index", "incarnation", "name", "points"]},
    ),
    "resizeElastic": (_JSON, {"type": "object", "required": ["replicas"]}),
}


def document() -> dict[str, Any]:
    """The whole document."""
    made = api().openapi()
    schemas = {name: _embedded(editor_schema(kind)) for name, kind in KINDS.items()}
    made["components"] = {
        "schemas": {**schemas, "List": _LIST, "Problem": _PROBLEM},
        "securitySchemes": {
            "token": {"type": "http", "scheme": "bearer", "description": "TCP, and the tasks' socket."}
        },
    }
    made["security"] = [{}, {"token": []}]
    for path in made["paths"].values():
        for operation in path.values():
            _complete(operation)
    return made


def text() -> str:
    """The document as it is checked in."""
    return json.dumps(document(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _complete(operation: dict[str, Any]) -> None:
    name = operation["operationId"].removesuffix("InNamespace")
    media, schema = _ANSWERS.get(name, (_JSON, _ANY))
    content = {media: {"schema": schema}}
    if name == "list":
        content["text/event-stream"] = {"schema": {"type": "string"}}
    problem = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    operation["responses"] = {
        "200": {"description": "Done.", "content": content},
        "default": {"description": "An error.", "content": problem},
    }
    body = _BODIES.get(name)
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {body[0]: {"schema": body[1]}}}


def _embedded(schema: dict[str, Any]) -> dict[str, Any]:
    """Inside another document a schema says neither its dialect nor its address."""
    return {key: value for key, value in schema.items() if key not in ("$schema", "$id")}


if __name__ == "__main__":
    print(text(), end="")  # noqa: T201
