"""Objects over HTTP, where the client does not show all of it; the rest is in tests/client."""

from __future__ import annotations

import msgspec
import pytest

from shoal.client import Client
from shoal.objects import codec
from shoal.objects.errors import Conflict, Exists, Forbidden, Invalid, NotFound
from shoal.objects.job import Job, Limits, Resources, Role
from shoal.objects.kinds import JOB, QUEUE
from shoal.objects.meta import Metadata
from shoal.objects.node import Capacity
from shoal.objects.quantities import Bytes, CpuMillis, Seconds
from shoal.objects.queue import Queue, QueueSpec
from tests.server.harness import LiveServer, a_job
from tests.server.raw import Raw, problem_in

JOBS = "/api/v1/namespaces/default/jobs"


def post(client: Client, document: object, path: str = JOBS, **headers: str) -> bytes:
    body = document if isinstance(document, bytes) else msgspec.json.encode(document)
    return client.transport.request("POST", path, body=body, headers=headers).body


def plain(name: str = "train", **spec: object) -> dict[str, object]:
    return {
        "apiVersion": "shoal.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"roles": [{"command": ["true"]}], **spec},
    }


def test_a_create_that_is_sent_again_is_one_object(client: Client) -> None:
    first = codec.decode(post(client, plain(), **{"Idempotency-Key": "k1"}), Job)
    assert codec.decode(post(client, plain(), **{"Idempotency-Key": "k1"}), Job) == first
    for key in ({"Idempotency-Key": "k2"}, {}):
        with pytest.raises(Exists):
            post(client, plain(), **key)


def test_everything_that_is_wrong_is_said_at_once(client: Client) -> None:
    with pytest.raises(Invalid) as caught:
        post(client, {**plain(replicsa=3, priority=[]), "kind": "Job"})
    paths = {problem.path for problem in caught.value.problems}
    assert paths == {"spec.replicsa", "spec.priority"}
    assert client.list(JOB).records == ()


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "problems|fields"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "nested|not JSON"),
        (b'{"kind": "Job"}', "problems|required"),
    ],
)
def test_what_is_no_object_is_refused(client: Client, body: bytes, word: str) -> None:
    with pytest.raises(Invalid, match=word):
        post(client, body)


def test_a_job_needs_its_queue(client: Client) -> None:
    with pytest.raises(Invalid, match="there is no queue nowhere"):
        client.create(a_job(queue="nowhere"))
    client.create(
        Queue(metadata=Metadata(name="private", namespace=""), spec=QueueSpec(namespaces=("team-a",)))
    )
    with pytest.raises(Forbidden, match="not for namespace default"):
        client.create(a_job(queue="private"))
    client.create(a_job(queue="private", namespace="team-a"))


def test_a_job_may_not_move_where_it_could_not_be_created(client: Client) -> None:
    spec = QueueSpec(highest_priority={"*": 0})
    client.create(Queue(metadata=Metadata(name="low", namespace=""), spec=spec))
    made = client.create(a_job(priority="production"))
    moved = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, queue="low"))
    with pytest.raises(Forbidden, match="at most priority 0"):
        client.update(moved)


def test_the_default_queue_is_always_there(client: Client) -> None:
    with pytest.raises(Forbidden, match="always there"):
        client.delete(QUEUE, "", "default")


@pytest.mark.parametrize("dry_run", ["", "?dryRun=true"])
def test_the_right_to_delete_is_checked_before_the_object(
    server: LiveServer, client: Client, dry_run: str
) -> None:
    """Else the answer would say to every job that the queue is there, and which queues are below."""
    client.create(a_job())
    with Raw(server.home.api_socket) as raw:
        token = server.token_of("default", "train")
        raw.send(f"DELETE /api/v1/queues/default{dry_run} HTTP/1.1\nAuthorization: Bearer {token}")
        status, _, body = raw.answer()
    assert (status, problem_in(body)["message"]) == (
        403,
        "the token of job train does not allow delete of queues",
    )


def node(cpu: float, gpus: int = 0) -> Capacity:
    return Capacity(
        cpu=CpuMillis(int(cpu * 1000)),
        memory=Bytes(8 * 2**30),
        gpus=tuple(str(number) for number in range(gpus)),
    )


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (Resources(cpu=CpuMillis(5000)), "asks for 5 cpu, and the largest node has 4"),
        (Resources(memory=Bytes(2**40)), "asks for 1Ti memory, and the largest node has 8Gi"),
        (Resources(gpu=3), "asks for 3 GPUs, and the largest node has 2"),
        (Resources(cpu=CpuMillis(4000), gpu=1), "more than any one node has"),
    ],
)
def test_what_no_node_can_hold_is_taken_with_a_warning(
    server: LiveServer, resources: Resources, words: str
) -> None:
    too_much = a_job(
        roles=(Role(command=("true",)), Role(name="ps", command=("a",), resources=resources))
    )
    with server.client() as client:
        told: list[str] = []
        client.transport.on_warning = told.append
        assert client.create(too_much, dry_run=True)
        assert told == [], "nothing is known of nodes yet"
        server.declared = [node(4), node(2, gpus=2)]
        assert client.create(too_much).status.phase == "Pending"
        (sentence,) = told
        assert sentence.startswith("job train waits for a larger node: a ps asks for")
        assert words in sentence


def test_a_dry_run_writes_nothing(client: Client) -> None:
    assert client.create(a_job(), dry_run=True).spec == a_job().spec
    with pytest.raises(Invalid):
        client.create(a_job(queue="nowhere"), dry_run=True)
    assert client.apply(a_job(), dry_run=True).result == "created"
    assert client.list(JOB).records == ()
    made = client.create(a_job())
    with pytest.raises(Exists):
        client.create(a_job(), dry_run=True)
    wanted = a_job(priority=7)
    would = client.apply(wanted, dry_run=True)
    assert (would.result, would.record.object.spec.priority) == ("changed", 7)
    assert client.delete(JOB, "default", "train", dry_run=True).object == made
    assert client.get(Job, "default", "train") == made


def test_apply_creates_changes_and_leaves_alone(client: Client) -> None:
    wanted = a_job(priority=1)
    assert client.apply(wanted).result == "created"
    assert client.apply(wanted).result == "unchanged"
    changed = client.apply(a_job(priority=2, limits=Limits(wall_time=Seconds(60))))
    assert changed.result == "changed"
    there = client.get(Job, "default", "train")
    assert (there.spec.priority, there.spec.limits.wall_time, there.metadata.generation) == (2, 60.0, 2)
    with pytest.raises(Invalid, match="cannot be changed after creation"):
        client.apply(a_job(runtime="torchrun"))


def test_apply_keeps_what_no_file_names(client: Client) -> None:
    metadata = Metadata(
        name="train",
        finalizers=("mine.example/keep",),
        labels={"a": "1"},
        annotations={"note": "x", "shoal.dev/kept": "y"},
    )
    client.create(msgspec.structs.replace(a_job(), metadata=metadata))
    applied = client.apply(a_job()).record.object.metadata
    assert applied.finalizers == ("mine.example/keep",)
    assert applied.labels == {}
    assert "note" not in applied.annotations
    assert applied.annotations["shoal.dev/kept"] == "y"


def test_an_apply_tries_again_when_another_write_came_between(
    server: LiveServer, client: Client
) -> None:
    client.create(a_job())
    real = server.store.update
    conflicts = [Conflict("somebody else"), Conflict("again")]

    def update(obj: Job, **options: object) -> Job:
        if conflicts:
            raise conflicts.pop()
        return real(obj, **options)  # type: ignore[arg-type]

    server.store.update = update  # type: ignore[method-assign]
    assert client.apply(a_job(priority=3)).result == "changed"
    assert client.get(Job, "default", "train").spec.priority == 3


@pytest.mark.slow
def test_an_address_and_its_object_agree(client: Client) -> None:
    with pytest.raises(Invalid, match="its address"):
        client.transport.request("PUT", f"{JOBS}/other", body=msgspec.json.encode(plain()))
    elsewhere = {**plain(), "metadata": {"name": "train", "namespace": "elsewhere"}}
    with pytest.raises(Invalid, match="namespace"):
        post(client, elsewhere)
    with pytest.raises(Invalid, match="kind"):
        post(client, {**plain(), "kind": "Queue"})


@pytest.mark.parametrize(
    ("method", "path", "error", "words"),
    [
        ("GET", "/api/v1/shoals", NotFound, "nothing at 'shoals'"),
        ("GET", "/api/v2/jobs", NotFound, "nothing at /api/v2/jobs"),
        ("GET", "/api/v1/jobs/train", NotFound, "is in a namespace"),
        ("DELETE", "/version", Invalid, "DELETE is not possible"),
        ("GET", f"{JOBS}?limit=-1", Invalid, "limit"),
        ("GET", f"{JOBS}?limit=many", Invalid, "limit"),
        ("GET", f"{JOBS}?labelSelector=%3D%3D", Invalid, ""),
        ("GET", f"{JOBS}?cursor=nonsense", Invalid, ""),
        ("GET", f"{JOBS}/Not%20A%20Name", NotFound, ""),
        ("GET", f"{JOBS}/..%2f..", NotFound, ""),
        ("PATCH", f"{JOBS}/train/status", Invalid, "the patch of a status is not valid"),
        ("GET", "/schema/shoal", NotFound, "no kind"),
    ],
)
def test_a_wrong_address_says_what_is_wrong(
    client: Client, method: str, path: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words or None):
        client.transport.request(method, path, body=b"{}" if method == "PATCH" else None)


def test_a_list_is_cut_into_pages_that_say_what_follows(client: Client) -> None:
    for number in range(7):
        client.create(a_job(f"job-{number}"))
    page = client.list(JOB, namespace="default", limit=3)
    assert (len(page.records), page.remaining) == (3, 4)
    rest = client.list(JOB, namespace="default", limit=3, cursor=page.cursor)
    last = client.list(JOB, namespace="default", limit=3, cursor=rest.cursor)
    assert (len(last.records), last.remaining, last.cursor) == (1, 0, "")
    assert page.version == last.version


@pytest.mark.slow
def test_a_list_of_everything_comes_whole(client: Client, server: LiveServer) -> None:
    from shoal.store.base import SYSTEM

    for number in range(1201):
        server.store.create(a_job(f"job-{number:04}"), actor=SYSTEM)
    everything = client.list(JOB)
    assert [record.object.metadata.name for record in everything.records] == [
        f"job-{number:04}" for number in range(1201)
    ]
    assert (everything.remaining, everything.cursor) == (0, "")
    part = client.list(JOB, limit=1100)
    assert (len(part.records), part.remaining) == (1100, 101)
    assert len(client.list(JOB, limit=1100, cursor=part.cursor).records) == 101


def test_documents_pass_byte_for_byte(client: Client, server: LiveServer) -> None:
    from shoal.store.base import SYSTEM

    client.create(a_job())
    stored = server.store.record(JOB, "default", "train", actor=SYSTEM).document
    assert client.record(JOB, "default", "train").document == stored
    assert client.list(JOB).records[0].document == stored


def test_writes_are_told_with_their_author(server: LiveServer, client: Client) -> None:
    from shoal.history.recorder import Recorder

    client.create(a_job())
    client.suspend("default", "train")  # before history is up, and after
    server.services.audit.attach(Recorder(server.history, server.services.clock))
    client.apply(client.get(Job, "default", "train"))
    client.delete(JOB, "default", "train")
    told = client.events(kind=JOB, namespace="default", name="train")
    assert [entry.reason for entry in told] == ["Created", "Changed", "Deleted"]
    assert all(entry.data["actor"] for entry in told)
    assert told[1].message.endswith(": suspend")
