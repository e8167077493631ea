"""What an older writer does not know survives its update."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shoal.objects import codec
from shoal.objects.job import Job
from shoal.objects.meta import Part

OLD: dict[str, Any] = {
    "apiVersion": "shoal.dev/v1alpha1",
    "kind": "Job",
    "metadata": {"name": "a", "tenant": "t1"},
    "spec": {
        "future": {"deep": [1, 2]},
        "limits": {"wallTime": "2h", "carbon": 5},
        "roles": [
            {"name": "ps", "nice": 1},
            {"name": "worker", "nice": 2, "resources": {"cpu": "2", "fpga": 1}},
        ],
        "array": {"indices": "0-3", "stride": 2},
    },
    "status": {
        "phase": "Running",
        "mood": "good",
        "conditions": [{"type": "A", "status": "True", "x": 1}],
    },
}


def merged(new: dict[str, Any], old: dict[str, Any] = OLD) -> dict[str, Any]:
    return json.loads(codec.merge_unknown(json.dumps(old).encode(), json.dumps(new).encode(), Job))


def test_every_depth_survives_an_update_by_a_writer_that_does_not_know_it() -> None:
    read = codec.decode(json.dumps(OLD), Job)
    written = json.loads(codec.merge_unknown(json.dumps(OLD).encode(), codec.encode(read), Job))
    assert written["metadata"]["tenant"] == "t1"
    assert written["spec"]["future"] == {"deep": [1, 2]}
    assert written["spec"]["limits"] == {"wallTime": "2h", "carbon": 5}
    assert [role["nice"] for role in written["spec"]["roles"]] == [1, 2]
    assert written["spec"]["roles"][1]["resources"]["fpga"] == 1
    assert written["spec"]["array"]["stride"] == 2
    assert written["status"]["mood"] == "good"
    assert written["status"]["conditions"][0]["x"] == 1


def test_items_are_matched_by_name_and_a_removed_one_takes_its_fields_along() -> None:
    new = {
        "kind": "Job",
        "metadata": {"name": "a"},
        "spec": {"roles": [{"name": "worker"}, {"name": "new"}]},
    }
    roles = merged(new)["spec"]["roles"]
    assert roles == [{"name": "worker", "nice": 2, "resources": {"fpga": 1}}, {"name": "new"}]


def test_a_part_left_out_as_default_keeps_its_unknown_fields_but_a_removed_one_does_not() -> None:
    spec = merged({"metadata": {"name": "a"}, "spec": {"roles": []}})["spec"]
    assert spec["limits"] == {"carbon": 5}
    assert "array" not in spec


def test_what_the_new_document_says_wins_and_known_fields_that_it_dropped_stay_dropped() -> None:
    new = {"metadata": {"name": "a"}, "spec": {"roles": [], "future": 1, "limits": {"carbon": 6}}}
    spec = merged(new)["spec"]
    assert spec == {"roles": [], "future": 1, "limits": {"carbon": 6}}


def test_without_unknown_fields_the_document_is_untouched() -> None:
    document = b'{ "metadata": {"name": "a"},  "spec": {"roles": []}}'
    assert codec.merge_unknown(document, document, Job) is document


class _Inner(Part, frozen=True, kw_only=True):
    a: int = 0


class _Outer(Part, frozen=True, kw_only=True):
    by_key: dict[str, _Inner] = {}
    by_position: tuple[_Inner, ...] = ()
    opaque: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            {"byKey": {"x": {"a": 1, "u": 1}, "gone": {"u": 2}}},
            {"byKey": {"x": {"a": 2}, "y": {"a": 3}}},
            {"byKey": {"x": {"a": 2, "u": 1}, "y": {"a": 3}}},
        ),
        (
            {"byPosition": [{"u": 1}, {"u": 2}]},
            {"byPosition": [{"a": 5}]},
            {"byPosition": [{"a": 5, "u": 1}]},
        ),
        ({"opaque": {"u": 1}}, {"opaque": {"v": 1}}, {"opaque": {"v": 1}}),
        ({"u": 1}, {}, {"u": 1}),
    ],
)
def test_maps_by_key_lists_by_position_and_opaque_values_as_they_are(
    old: Any, new: Any, expected: Any
) -> None:
    out = codec.merge_unknown(json.dumps(old).encode(), json.dumps(new).encode(), _Outer)
    assert json.loads(out) == expected


def test_a_role_whose_name_is_left_out_is_the_one_of_the_default_name() -> None:
    new = {"metadata": {"name": "a"}, "spec": {"roles": [{"replicas": 3}]}}
    assert merged(new)["spec"]["roles"][0]["nice"] == 2
