# ruff: noqa: E501  (messages are quoted whole)
"""Files in: every problem with its place, and nothing a file can do to us. Objects out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.objects import codec, yaml_events
from shoal.objects.errors import Invalid
from shoal.objects.job import Job
from shoal.objects.yaml import load_objects, parse_documents, to_yaml

JOB = """\
apiVersion: shoal.dev/v1alpha1
kind: Job
metadata: {name: digits, namespace: team-a}
spec:
  queue: research
  roles:
  - name: worker
    replicas: 4               # at most
    command: [python, train.py, --epochs, "5"]
    resources: {cpu: 1, memory: 2Gi}
  limits: {wallTime: 2h}
"""


def problems(text: str | bytes) -> list[str]:
    with pytest.raises(Invalid) as raised:
        load_objects(text, "job.yaml")
    assert str(raised.value).startswith("job.yaml")
    assert "\n" not in str(raised.value)
    return [str(problem) for problem in raised.value.problems] or [str(raised.value)]


def value(text: str) -> Any:
    documents, found = parse_documents(text)
    assert found == []
    return documents[0].value


def test_a_file_of_several_objects_lists_and_empty_documents() -> None:
    items = "".join(f"- {line}" if not i else f"  {line}" for i, line in enumerate(JOB.splitlines(True)))
    text = f"---\n{JOB.replace('digits', 'a')}---\n---\n{JOB.replace('digits', 'b')}...\n---\n"
    listed = "kind: List\napiVersion: v1\nitems:\n" + items
    assert [obj.metadata.name for obj in load_objects(text + listed, "x")] == ["a", "b", "digits"]
    assert load_objects(JOB.encode(), "x") == load_objects(b"\xef\xbb\xbf" + JOB.encode(), "x")


def test_json_is_accepted_with_all_its_escapes() -> None:
    text = (
        '{"apiVersion": "shoal.dev/v1alpha1", "kind": "Job",\n\t"metadata": {"name": "a"}, '
        '"spec": {"roles": [{"command": ["\\ud83d\\ude00\\/"]}]}}'
    )
    (made,) = load_objects(text, "x")
    assert isinstance(made, Job)
    assert made.spec.roles[0].command == ("\U0001f600/",)
    assert "a is given twice" in problems('{"a": 1, "a": 2}')[-1]


def test_every_problem_of_the_file_with_its_place() -> None:
    text = JOB.replace("memory", "memroy").replace("replicas: 4", "replicas: four") + "  queue: other\n"
    text += (
        "---\nkind: Jop\n---\napiVersion: kubeflow.org/v1\nkind: PyTorchJob\n---\n- 1\n---\na: b: c\n"
    )
    assert problems(text) == [
        "line 8, column 5: spec.roles[0].replicas: wants a whole number from 1 to 100000; found the text 'four'",
        "line 10, column 25: spec.roles[0].resources.memroy: unknown field; did you mean memory?",
        "line 12, column 3: spec.queue: queue is given twice, first on line 5",
        "line 14, column 1: apiVersion: is required: shoal.dev/v1alpha1",
        "line 14, column 1: kind: the text 'Jop' is no kind; did you mean Job?",
        "line 16, column 1: apiVersion: wants shoal.dev/v1alpha1; found the text 'kubeflow.org/v1'",
        "line 19, column 1: an object has the fields kind, metadata and spec; found a list",
        "line 21, column 5: this is not YAML: mapping values are not allowed in this context (quote a text "
        "that holds ': ', and see the indentation)",
    ]


def test_places_inside_lists_and_anchors() -> None:
    listed = f"kind: List\nitems:\n- {JOB.replace(chr(10), chr(10) + '  ').replace('cpu', 'cpuu')}"
    assert problems(listed) == [
        "line 12, column 19: spec.roles[0].resources.cpuu: unknown field; did you mean cpu?"
    ]
    anchored = JOB.replace("{cpu: 1,", "&r {cpu: one,") + "  gang: *r\n"
    assert problems(anchored) == [
        "line 10, column 20: spec.roles[0].resources.cpu: 'one' is not a number of cores such as 500m, 0.5 or 2",
        "line 10, column 20: spec.gang.cpu: unknown field; known here: min",
        "line 10, column 30: spec.gang.memory: unknown field; known here: min",
    ]


def test_the_same_object_twice() -> None:
    found = problems(f"{JOB}---\n{JOB}")
    assert found == ["line 15, column 12: metadata.name: the file holds two objects Job digits"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[on, off, yes, no, y, NO, True, false, null, ~, ]",
         ["on", "off", "yes", "no", "y", "NO", True, False, None, None]),
        ("[0, -7, +7, 1.5, .5, 1e3, 6.]", [0, -7, 7, 1.5, 0.5, 1000.0, 6.0]),
        ("[0777, 0x1f, 0o17, 1_000, 12:30, 2001-01-01, .inf, .nan, 1e999, --1]",
         ["0777", "0x1f", "0o17", "1_000", "12:30", "2001-01-01", ".inf", ".nan", "1e999", "--1"]),
        ("{1: a, on: b, ~: c}", {"1": "a", "on": "b", "~": "c"}),
        ("['1', \"true\", !!str 1, !!int 1]", ["1", "true", "1", 1]),
        ("{a: &a {x: 1, y: 2}, b: {<<: *a, y: 3}, c: {<<: [{x: 9}, *a]}, '<<': 4}",
         {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 9, "y": 2}, "<<": 4}),
        ("9" * 5000, "9" * 5000),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
    ],
)  # fmt: skip
def test_scalars_are_read_as_yaml_1_2_and_json_read_them(text: str, expected: Any) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: *b", "line 1, column 4: *b repeats &b, which is not there"),
        ("&a [*a]", "line 1, column 5: *a stands inside what it repeats, which would never end"),
        ("? [a]\n: b", "line 1, column 3: a key is a single text"),
        ("{&a [1]: 2}", "line 1, column 2: a key is a single text"),
        ("x: &a b\n*a : 2", "line 2, column 1: a key is written out, not repeated by an alias"),
        ("<<: 5", "line 1, column 5: << takes a map, or a list of maps"),
        ("[" * 200, "line 1, column 101: nested deeper than 100 levels"),
        ("\ta: 1", "line 1, column 1: this is not YAML: found character that cannot start any token (indent "
         "with spaces, not tabs, and quote a text that begins with @, ` or %)"),
        ("a: \x01", "this is not YAML: control characters are not allowed"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_stops_with_one_problem(text: str, problem: str) -> None:
    _, found = parse_documents(text)
    assert [str(p) for p in found] == [problem]


def test_no_tag_makes_anything() -> None:
    text = "a: !!python/object/apply:os.system [x]\nb: !thing {}\nc: !!binary aGk="
    documents, found = parse_documents(text)
    assert documents[0].value == {"a": ["x"], "b": {}, "c": "aGk="}
    assert [p.line for p in found] == [1, 2, 3]
    assert all("is not understood here: leave it out" in str(p) for p in found)


BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 30)
)
MERGE_BOMB = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}], k{i}: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 60)
)
LONG_TEXTS = f"a: &a {'x' * 1_000_000}\nb: [{','.join(['*a'] * 1000)}]"


@pytest.mark.parametrize("text", [BOMB, MERGE_BOMB, LONG_TEXTS])
def test_a_bomb_is_one_clear_error_at_once(text: str) -> None:
    started = time.process_time()
    (problem,) = problems(text)
    assert "the file stands for more than 500000 values" in problem
    assert time.process_time() - started < 5


def test_a_file_of_ten_megabytes_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_events.yaml, "parse", None)
    for text in ("x: y\n" * 2_000_000, b"x: y\n" * 2_000_000):
        with pytest.raises(Invalid) as raised:
            load_objects(text, "big.yaml")
        assert str(raised.value) == "big.yaml: the file has 9.5 MiB; at most 4 MiB are read"
        assert raised.value.hint == "split it into several files"


def test_bytes_that_are_no_text_and_files_without_objects() -> None:
    assert problems(b"a: \xff") == ["job.yaml: this is not UTF-8 text: see byte 3"]
    assert problems("a: \ud800") == ["job.yaml: this is not UTF-8 text: see byte 3"]
    for empty in ("", "# nothing\n", "---\n---\n"):
        assert problems(empty) == ["job.yaml holds no object"]


def test_the_namespace_of_the_caller() -> None:
    (made,) = load_objects(JOB.replace(", namespace: team-a", ""), "x", namespace="b")
    assert made.metadata.namespace == "b"


@pytest.mark.slow
@settings(deadline=None)
@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        load_objects(text, "x")
    except Invalid as error:
        assert str(error)


def test_yaml_for_people() -> None:
    (made,) = load_objects(JOB, "x")
    assert (
        to_yaml(made)
        == """\
apiVersion: shoal.dev/v1alpha1
kind: Job
metadata:
  name: digits
  namespace: team-a
spec:
  roles:
  - replicas: 4
    command: [python, train.py, --epochs, '5']
    resources:
      memory: 2Gi
  queue: research
  limits:
    wallTime: 2h
"""
    )
    document = {"spec": {}, "kind": "Job", "zebra": 1, "status": {}}
    assert to_yaml(made, document).split("---\n")[1] == "kind: Job\nspec: {}\nzebra: 1\n"
    listed = to_yaml({"kind": "JobList", "metadata": {}, "items": [codec.builtins(made)]})
    assert listed.splitlines()[3] == "- apiVersion: shoal.dev/v1alpha1"
    assert load_objects(listed, "x") == [made]
    assert to_yaml([1, "1"]) == "[1, '1']\n"


def test_pyyaml_is_imported_in_two_modules_only() -> None:
    package = Path(yaml_events.__file__).parent.parent
    users = {path.name for path in package.rglob("*.py") if "import yaml\n" in path.read_text()}
    assert users <= {"yaml.py", "yaml_events.py"}
