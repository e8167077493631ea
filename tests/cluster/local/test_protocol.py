import socket
import struct
import threading

import pytest

from shoal.cluster.base import NodeState, Outcome, Refused
from shoal.cluster.local import protocol
from shoal.cluster.local.protocol import Answer, Call, Change, Frames, answer_error, ask, frame
from shoal.objects import codec
from shoal.objects.errors import NotFound, Unavailable
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.task import Placement, TaskBootstrap, TaskKey, TaskSpec

KEY = TaskKey(namespace="default", name="a")
SPEC = TaskSpec(
    namespace="default", name="a", job="job", job_uid="uid", role="worker", index=0, attempt=1,
    incarnation=1, placement=Placement(node="n", devices=("0",)), command=("true", "ü"),
    env={"A": "b\n"}, cpu=CpuMillis(4000), cpu_limit=CpuMillis(1500), memory=Bytes(3),
    ports={"http": 80}, isolation="strict",
)  # fmt: skip

REQUESTS = [
    protocol.Hello(version=1),
    protocol.Ping(),
    protocol.Describe(),
    protocol.Watch(),
    protocol.Admit(specs=(SPEC,)),
    protocol.Release(tasks=(KEY,)),
    protocol.Launch(
        tasks=(protocol.LaunchTask(task=KEY, bootstrap=TaskBootstrap(env={"A": "1"}, files={"f": "x"})),)
    ),
    protocol.StopTask(task=KEY, grace_seconds=0.5, reason="Preempted"),
    protocol.Acknowledge(task=KEY),
    protocol.Measure(tasks=(KEY,)),
    protocol.Exec(task=KEY, command=("sh",), tty=True),
    protocol.ForgetJob(namespace="default", job_uid="uid", outputs=True),
    protocol.ShutDown(grace_seconds=1.0),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r).__name__)
def test_requests_arrive_as_they_were_sent(request_):
    (document,) = Frames().feed(frame(Call(id=7, request=request_)))
    assert codec.decode(document, Call) == Call(id=7, request=request_)


def test_every_request_is_tested():
    assert {type(request) for request in REQUESTS} == set(protocol.AnyRequest.__args__)


def test_frames_are_cut_anywhere():
    stream = b"".join(frame(Call(id=number, request=protocol.Ping())) for number in range(1, 4))
    for size in range(1, len(stream) + 1):
        frames = Frames()
        documents = [
            document
            for start in range(0, len(stream), size)
            for document in frames.feed(stream[start : start + size])
        ]
        assert [codec.decode(document, Call).id for document in documents] == [1, 2, 3]


def test_a_frame_that_cannot_be_one_is_refused():
    with pytest.raises(ValueError, match="none of this protocol"):
        Frames().feed(struct.pack(">I", 1 << 31))


def test_a_change_makes_the_task():
    outcome = Outcome(reason="Exited", exit_code=0)
    change = Change(namespace="default", name="a", spec=SPEC, phase="Ended", outcome=outcome, ended=2.0)
    (document,) = Frames().feed(frame(Answer(changes=(change,))))
    (same,) = codec.decode(document, Answer).changes
    task = same.task(SPEC)
    assert (task.spec, task.phase, task.outcome, task.ended) == (SPEC, "Ended", outcome, 2.0)


def answered(*answers):
    """A socket whose other end reads one call and sends these."""
    ours, theirs = socket.socketpair()
    ours.settimeout(5.0)

    def serve():
        with theirs:
            theirs.recv(1 << 16)
            for answer in answers:
                theirs.sendall(frame(answer))

    thread = threading.Thread(target=serve)
    thread.start()
    return ours, thread


def test_ask_takes_its_own_answer_among_changes():
    state = NodeState(name="n", ready=True)
    raw = Answer(id=1, result=protocol.msgspec.Raw(codec.encode(state)))
    connection, thread = answered(Answer(changes=(Change(namespace="d", name="x", gone=True),)), raw)
    with connection:
        assert ask(connection, protocol.Describe(), NodeState) == state
    thread.join()


@pytest.mark.parametrize(
    "error", [Refused("n", "OutOfCpu", "no cores left"), NotFound("no task", hint="look")]
)
def test_errors_are_raised_at_the_client_as_they_were(error):
    connection, thread = answered(answer_error(1, error))
    with connection, pytest.raises(type(error)) as caught:
        ask(connection, protocol.Ping(), type(None))
    thread.join()
    assert caught.value.document() == error.document()


def test_a_connection_that_closes_is_no_answer():
    connection, thread = answered()
    with connection, pytest.raises(Unavailable):
        ask(connection, protocol.Ping(), type(None))
    thread.join()
