from __future__ import annotations

from shoal.cli.diff import MISSING, differences, flattened


def test_a_document_as_paths() -> None:
    document = {
        "spec": {"queue": "a", "roles": [{"name": "worker", "replicas": 2, "command": ["x", "y"]}]},
        "labels": {"a.b/c": "d"},
        "empty": {},
    }
    assert flattened(document) == {
        "spec.queue": "a",
        "spec.roles[worker].name": "worker",
        "spec.roles[worker].replicas": 2,
        "spec.roles[worker].command": ["x", "y"],
        'labels."a.b/c"': "d",
    }


def test_differences_name_old_and_new() -> None:
    before = {"queue": "a", "roles": [{"name": "w", "replicas": 1}], "gone": 1}
    after = {"queue": "b", "roles": [{"name": "p"}, {"name": "w", "replicas": 1}], "new": [1]}
    assert differences(before, after) == [
        ("queue", "a", "b"),
        ("roles[p].name", MISSING, "p"),
        ("new", MISSING, [1]),
        ("gone", 1, MISSING),
    ]


def test_a_list_of_lists_or_of_nothing_in_particular_is_one_value() -> None:
    assert flattened({"a": [[1], [2]]}) == {"a": [[1], [2]]}
