"""The connection to an agent: what no healthy agent does."""

import contextlib
import socket
import threading

import pytest

from shoal.cluster.base import NodeState
from shoal.cluster.local import home as homes
from shoal.cluster.local import link as links
from shoal.cluster.local import protocol
from shoal.cluster.local.link import Link
from shoal.cluster.local.protocol import Answer, Call, Change, Frames, answer_error, frame
from shoal.objects import codec
from shoal.objects.errors import Unavailable, VersionSkew
from shoal.testing.local import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def agent(tmp_path):
    """Serves each connection with `behave(connection, calls)`; returns the socket's path."""
    with contextlib.ExitStack() as stack:

        def serve(behave):
            path = tmp_path / "agent.sock"
            listener = stack.enter_context(homes.listen(path))

            def accept():
                with contextlib.suppress(OSError):
                    while True:
                        connection, _ = listener.accept()
                        with connection, contextlib.suppress(OSError):
                            behave(connection, calls_of(connection))

            thread = threading.Thread(target=accept)
            thread.start()
            stack.callback(thread.join)
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
            return path

        yield serve


def calls_of(connection):
    frames = Frames()
    while data := connection.recv(1 << 16):
        for document in frames.feed(data):
            yield codec.decode(document, Call)


def answer(connection, call, result=None):
    raw = protocol.msgspec.Raw(codec.encode(result)) if result is not None else protocol.msgspec.Raw()
    connection.sendall(frame(Answer(id=call.id, result=raw)))


def opening(connection, calls):
    """Answer what a link asks first."""
    greeting = protocol.Greeting(version=1, node="n", pid=1, shoal="0")
    for result in (greeting, NodeState(name="n", ready=True), None):
        answer(connection, next(calls), result)


@pytest.fixture
def connect(agent):  # a link goes before the agent that it is connected to
    with contextlib.ExitStack() as stack:

        def make(path):
            changed = []
            link = Link("n", path, changed.append)
            stack.callback(link.close)
            return link, changed

        yield make


def test_an_agent_of_another_version_is_named(agent, connect):
    def behave(connection, calls):
        connection.sendall(frame(answer_error(next(calls).id, VersionSkew("another version"))))

    link, _ = connect(agent(behave))
    wait_until(lambda: "another version" in link.message)
    assert link.state is None
    assert link.ping() is None


def test_nobody_there(tmp_path, connect):
    link, changed = connect(tmp_path / "none")
    wait_until(lambda: link.message == "its agent is not up")
    assert not changed


def test_a_request_that_is_never_answered_ends_with_its_deadline(agent, connect, monkeypatch):
    def behave(connection, calls):
        opening(connection, calls)
        for _ in calls:
            continue

    monkeypatch.setattr(links, "OVERDUE_SECONDS", 0.05)
    link, _ = connect(agent(behave))
    wait_until(lambda: link.state is not None)
    with pytest.raises(Unavailable, match="does not answer"):
        link.post(protocol.Describe()).result(NodeState, 0.05)
    probe = link.ping()  # none, where the link's own barrier is overdue already
    assert probe is None or not probe.wait(0.1)
    wait_until(lambda: not link.answering)
    assert link.state is None
    assert link.ping() is None
    with pytest.raises(Unavailable):  # at once: it is known not to answer
        link.post(protocol.Describe())


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff",
        b"\0\0\0\2{]",
        frame(Answer(changes=(Change(namespace="default", name="never-listed"),))),
    ],
    ids=["no frame", "no JSON", "a change of an unknown task"],
)
def test_a_link_that_hears_nonsense_connects_anew(agent, connect, garbage):
    connections = []

    def behave(connection, calls):
        connections.append(1)
        opening(connection, calls)
        if len(connections) == 1:
            connection.sendall(garbage)
        for call in calls:
            answer(connection, call)

    link, changed = connect(agent(behave))
    wait_until(lambda: len(connections) == 2 and link.state is not None)
    assert None in changed  # changes may have been missed


def test_requests_on_a_connection_that_breaks_are_not_left_waiting(agent, connect):
    def behave(connection, calls):
        opening(connection, calls)
        next(calls)

    link, _ = connect(agent(behave))
    wait_until(lambda: link.state is not None)
    pending = link.post(protocol.Describe())
    with pytest.raises(Unavailable):
        pending.result(NodeState, 10.0)
