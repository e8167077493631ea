"""The agent's socket under clients that send slowly, or not at all, over real sockets."""

import socket
import threading
import time

import pytest

from shoal.cluster.local import serving
from shoal.cluster.local.loop import Loop
from shoal.cluster.local.protocol import Call, Ping, frame
from shoal.cluster.local.serving import Serving


class Agent:
    """A loop in a thread that notes the calls it is given."""

    def __init__(self, path):
        self.path = str(path)
        self.calls, self.reports = [], []
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        listener.listen()
        self.loop = Loop()
        self.serving = Serving(
            self.loop,
            listener,
            lambda client, call: self.calls.append(call.id),
            self.reports.append,
            lambda pid, uid: True,
        )
        self.thread = threading.Thread(target=self.loop.run, daemon=True)
        self.thread.start()

    def connect(self):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(20)
        client.connect(self.path)
        return client

    def close(self):
        closed = threading.Event()
        self.loop.call(self.serving.close)
        self.loop.call(closed.set)
        assert closed.wait(20)
        self.loop.stop()
        self.thread.join(20)


@pytest.fixture
def agent(tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "_FRAME_SECONDS", 0.3)
    made = Agent(tmp_path / "agent.sock")
    yield made
    made.close()


CALL = frame(Call(id=7, request=Ping()))


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", CALL[:2], CALL[:-1], CALL + CALL[:5]])
def test_a_client_that_sends_no_whole_request_is_dropped(agent, sent):
    with agent.connect() as client:
        client.sendall(sent)
        assert client.recv(1) == b""
    assert agent.calls == ([7] if len(sent) > len(CALL) else [])
    assert "no whole request" in agent.reports[-1]


@pytest.mark.slow
def test_bytes_that_trickle_in_do_not_extend_the_wait(agent):
    with agent.connect() as client:
        client.settimeout(0.02)
        client.sendall(CALL[:4])
        for _ in range(1000):
            try:
                assert client.recv(1) == b""
                return
            except TimeoutError:
                client.sendall(CALL[4:5])
    raise AssertionError("the client is still connected")


@pytest.mark.slow
def test_a_client_that_waits_for_answers_stays(agent):
    with agent.connect() as client:
        client.sendall(CALL)
        time.sleep(0.5)
        client.sendall(CALL[:5])
        client.sendall(CALL[5:])
        deadline = time.monotonic() + 20
        while agent.calls != [7, 7]:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_only_so_many_clients_are_taken(agent, monkeypatch):
    monkeypatch.setattr(serving, "_MAX_CLIENTS", 1)
    with agent.connect() as first:
        first.sendall(CALL)
        with agent.connect() as second:
            assert second.recv(1) == b""
    assert "turned away" in agent.reports[-1]
