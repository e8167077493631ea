# ruff: noqa: E501  (documents and messages are quoted whole)
"""What people may hand in wrongly: one sentence each, the right exit code, and nobody else is hurt.

Through the command line as people do, and past it: the server admits nothing that a client let through.
"""

import json
import time

import msgspec
import pytest

from shoal.client.wire import API
from shoal.objects.errors import Forbidden, Invalid, NotFound
from shoal.objects.kinds import JOB, QUEUE
from tests.scenarios.standing import Ran, Standing, role

pytestmark = [pytest.mark.process, pytest.mark.slow]

USAGE, NOT_FOUND, CONFLICT, NOT_ALLOWED = 2, 3, 4, 5


def manifest(spec: str = "", role: str = "", name: str = "wrong") -> str:
    """A job in YAML with these lines added to its spec and to its one role."""
    return (
        f"apiVersion: shoal.dev/v1alpha1\nkind: Job\nmetadata: {{name: {name}}}\nspec:\n"
        f"{spec}  roles:\n  - command: ['true']\n{role}"
    )


def queue(spec: str, name: str = "wrong", parent: str = "") -> str:
    above = f"parent: {parent}" if parent else spec
    return f"apiVersion: shoal.dev/v1alpha1\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {{{above}}}\n---\n"


def apply(guarded: Standing, text: str | bytes) -> Ran:
    data = text.encode() if isinstance(text, str) else text
    return guarded.cli("apply", "-y", "-f", "-", stdin=data)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (manifest(spec="  prioritty: 5\n"), ["line 5, column 3", "spec.prioritty", "priority"]),
        (manifest(role="    replica: 5\n"), ["line 7, column 5", "spec.roles[0].replica", "replicas"]),
        (
            manifest(role="    replicas: many\n"),
            ["line 7, column 5", "spec.roles[0].replicas", "'many'"],
        ),
        (manifest(role="    resources: {memory: 2GB}\n"), ["'2GB' is not a size", "2G?"]),
        (manifest(role="    resources: [1]\n"), ["spec.roles[0].resources", "list"]),
        (manifest(spec="  suspend: perhaps\n"), ["spec.suspend", "perhaps"]),
        (manifest(role="    image: python:3.12\n"), ["image needs a cluster that runs containers"]),
        (manifest(spec="  limits: {nodeHours: -1}\n"), ["spec.limits.nodeHours", "above 0"]),
        (
            manifest(spec="  speed: {curve: [1, .nan]}\n"),
            ["line 5, column 22", "spec.speed.curve[1]", "a number"],
        ),
        (manifest(spec="  speed: {curve: [1, -2]}\n"), ["spec.speed.curve[1]", "at least 0; found -2"]),
        (manifest(role="    resources: {gpu: 1, gpuShare: 0.5}\n"), ["leave gpu or gpuShare out"]),
        (queue("weight: 0"), ["spec.weight", "above 0; found 0"]),
        (queue("weight: .nan"), ["spec.weight", "wants a number"]),
        (queue("nominal: {cpu: 1}, guaranteed: {cpu: 2}"), ["spec.guaranteed.cpu", "more than nominal"]),
        (queue("parent: nowhere"), ["spec.parent", "there is no queue nowhere"]),
        (queue("parent: wrong"), ["spec.parent", "wrong cannot be above itself"]),
        (queue("", "a", "b") + queue("", "b", "a"), ["refers to itself: queue/a -> queue/b -> queue/a"]),
        (manifest(name="'Not A Name'"), ["metadata.name", "lower-case"]),
        (
            "apiVersion: shoal.dev/v1alpha1\nkind: Jbo\nmetadata: {name: x}\n",
            ["'Jbo' is no kind", "Job"],
        ),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n", ["wants shoal.dev/v1alpha1"]),
        ("just text", ["an object has the fields"]),
        ("", ["holds no object"]),
        ("a: [1, 2\nb: }", ["line 2"]),
        ("!!python/object/apply:os.system ['true']\n", ["tag"]),
    ],
)
def test_a_wrong_document_is_named_with_its_place(guarded: Standing, text: str, says: list[str]) -> None:
    told = apply(guarded, text).refused(USAGE)
    for part in says:
        assert part in told, told
    with pytest.raises(NotFound):
        guarded.client.get(JOB.struct, "default", "wrong")


def test_every_problem_of_a_file_is_told_and_nothing_is_created(guarded: Standing) -> None:
    wrong = manifest(spec="  a: 1\n  queue: Q\n", role="    b: 2\n")
    told = apply(guarded, manifest(name="right") + "---\n" + wrong).refused(USAGE)
    for place in ("spec.a", "spec.queue", "spec.roles[0].b"):
        assert place in told, told
    with pytest.raises(NotFound):
        guarded.client.get(JOB.struct, "default", "right")


@pytest.mark.parametrize(
    ("resources", "says"),
    [
        ("{cpu: -1}", ["is not a number of cores"]),
        ("{cpu: 1e30}", ["larger than any machine"]),
        ("{memory: 5}", ["did you mean 5Gi?"]),
    ],
)
def test_resources_that_make_no_sense_are_refused_at_once(
    guarded: Standing, resources: str, says: list[str]
) -> None:
    told = apply(guarded, manifest(role=f"    resources: {resources}\n")).refused(USAGE)
    for part in says:
        assert part in told, told


def test_a_task_larger_than_any_node_waits_and_its_submitter_is_warned(guarded: Standing) -> None:
    told = guarded.cli("run", "-d", "-o", "json", "--cpu", "64", "--", "true")
    assert told.code == 0, told.err
    assert "warning: job " in told.err
    assert "asks for 64 cpu, and the largest node has 4" in told.err
    job = guarded.adopt(JOB, json.loads(told.out)["metadata"]["name"])
    assert guarded.waiting(job) == "TooLarge"


def test_a_gang_that_can_never_fit_waits_with_that_reason(guarded: Standing) -> None:
    job = guarded.job(role("true", replicas=9, resources={"cpu": "1"}))
    assert guarded.waiting(job) == "TooLarge"
    told = guarded.cli("explain", f"job/{job.metadata.name}")
    assert told.code == 0, told.err
    assert b"empty nodes that suit hold 8 x worker" in told.out


def test_an_unknown_queue_is_named(guarded: Standing) -> None:
    told = guarded.cli("run", "-d", "--queue", "reserch", "--", "true").refused(USAGE)
    assert "there is no queue reserch" in told
    assert "shoal get queues" in told


def test_a_queue_that_is_not_for_us_is_not_allowed(guarded: Standing) -> None:
    guarded.create(QUEUE, {"metadata": {"name": "theirs"}, "spec": {"namespaces": ["team-a"]}})
    told = guarded.cli("run", "-d", "--queue", "theirs", "--", "true").refused(NOT_ALLOWED)
    assert "not for namespace default" in told


def test_a_name_that_is_taken_is_a_conflict_and_the_first_job_stays(guarded: Standing) -> None:
    first = guarded.job(role("exec sleep 60"), metadata={"name": "taken"})
    guarded.running(first)
    told = guarded.cli("run", "-d", "--name", "taken", "--", "true").refused(CONFLICT)
    assert "taken exists already" in told
    assert guarded.look(first).metadata.uid == first.metadata.uid
    assert guarded.look(first).status.phase == "Running"


def test_what_is_not_there_is_not_found(guarded: Standing) -> None:
    for words in (
        ["get", "job/nobody"],
        ["describe", "job/nobody"],
        ["logs", "nobody"],
        ["cancel", "job/nobody"],
    ):
        assert "nobody" in guarded.cli(*words).refused(NOT_FOUND)
    assert "'jbos'" in guarded.cli("get", "jbos").refused(NOT_FOUND)


BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
)
MERGES = "\n".join(
    ["b0: &b0 {k: v}"]
    + [f"b{n}: &b{n} {{p{n}: {{<<: *b{n - 1}}}, q{n}: {{<<: *b{n - 1}}}}}" for n in range(1, 60)]
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (BOMB, "more than"),
        (MERGES, "more than"),
        ("[" * 100_000, "nested"),
        ("{a: " * 50_000, "nested"),
        ("x: &x [*x]", "*x"),
        ("k: &a [" + "y" * 3_900_000 + "]", "apiVersion: is required"),
    ],
    ids=["aliases", "merges", "lists", "maps", "itself", "one long word"],
)
def test_a_bomb_is_refused_in_little_time_and_memory(guarded: Standing, text: str, says: str) -> None:
    begin = time.monotonic()
    ran = guarded.cli("apply", "-y", "-f", "-", stdin=text.encode())
    assert says in ran.refused(USAGE), ran.err
    assert time.monotonic() - begin < 20.0
    assert ran.peak_bytes < 400 << 20


def test_a_manifest_of_10_mb_is_refused_by_its_size(guarded: Standing) -> None:
    big = manifest(role=f"    env: {{A: '{'x' * 10_000_000}'}}\n")
    assert "4 MiB" in apply(guarded, big).refused(USAGE)
    file = guarded.home.path.parent / "big.yaml"
    file.write_text(big)
    ran = guarded.cli("apply", "-y", "-f", str(file))
    assert "4 MiB" in ran.refused(USAGE)
    assert ran.peak_bytes < 100 << 20, "it is not even read whole"


def test_a_manifest_that_is_not_text_is_refused(guarded: Standing) -> None:
    for data in (b"\xff\xfe\x00\x01", b"name: \xc3\x28", bytes(1000)):
        assert "standard input" in apply(guarded, data).refused(USAGE)
    gone = guarded.cli("apply", "-y", "-f", "nowhere.yaml")
    assert "nowhere.yaml" in gone.refused(USAGE)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[" * 200_000, "nested"),
        (b'"text"', "an object has the fields"),
        (b"\xff" * 100, "JSON"),
        (
            b'{"kind": "Job", "metadata": {"name": "x"}, "spec": {"roles": [{"command": ["a"], "x": 1}]}}',
            "roles[0].x",
        ),
    ],
)
def test_the_server_itself_refuses_what_is_wrong(guarded: Standing, body: bytes, says: str) -> None:
    with pytest.raises(Invalid) as refused:
        guarded.client.transport.request("POST", f"{API}/namespaces/default/jobs", body=body)
    assert says in refused.value.message


def test_the_server_takes_no_body_beyond_its_bound(guarded: Standing) -> None:
    body = msgspec.json.encode({"a": "x" * 10_000_000})
    path = f"{API}/namespaces/default/jobs"
    with pytest.raises(Invalid, match="2 MiB"):
        guarded.client.transport.request("POST", path, body=body)
    connection = guarded.client.transport.address.open(30.0)
    connection.request("POST", path, body=body, headers={"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status in (413, 422)
    assert "2 MiB" in msgspec.json.decode(answer.read())["message"]
    connection.close()


def test_everybodys_queue_cannot_be_deleted(guarded: Standing) -> None:
    with pytest.raises(Forbidden, match="always there"):
        guarded.client.delete(QUEUE, "", "default")
    assert "always there" in guarded.cli("delete", "-y", "queue/default").refused(NOT_ALLOWED)


def test_errors_are_documents_for_programs(guarded: Standing) -> None:
    ran = guarded.cli("run", "-d", "-o", "json", "--queue", "nowhere", "--", "true")
    ran.refused(USAGE)
    document = msgspec.json.decode(ran.out)
    assert document["code"] == "Invalid"
    assert document["details"]["problems"][0]["path"] == "spec.queue"
