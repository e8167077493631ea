"""Commands beside tasks, in their isolation."""

import signal
from pathlib import Path

import pytest

from shoal.objects.errors import NotFound
from shoal.testing.cluster import start_group
from shoal.testing.local import wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]


def begin(make, make_spec):
    """A home, and a task in it that runs."""
    local = make()
    spec = make_spec(("sh", "-c", "echo in-the-task > /tmp/mark; exec sleep 600"), env={"MINE": "yes"})
    start_group(local.cluster, (spec,))
    wait_until(lambda: local.phase(spec.key) == "Running")
    return local, spec


@pytest.fixture(scope="module")
def running(make_shared_home, make_spec):
    return begin(make_shared_home, make_spec)


@pytest.fixture
def harmed(make_home, make_spec):
    """As `running`, for a test that ends the task or its agent."""
    return begin(make_home, make_spec)


def outcome(session):
    """Everything that it writes, and its exit code."""
    pieces = {"out": b"", "err": b""}
    while True:
        kind, data = session.receive()
        if kind == "exit":
            session.close()
            return pieces["out"], pieces["err"], int(data)
        pieces[kind] += data


def run(local, spec, *command, **options):
    return outcome(local.cluster.exec(spec.key, command, **options))


def test_output_errors_and_exit_code(running):
    assert run(*running, "sh", "-c", "echo out; echo err >&2; exit 7") == (b"out\n", b"err\n", 7)


def test_it_sees_what_the_task_sees(running):
    script = "echo $MINE; cat /tmp/mark; pwd"
    wait_until(lambda: b"in-the-task" in run(*running, "sh", "-c", "cat /tmp/mark")[0])
    out, _, code = run(*running, "sh", "-c", script)
    _, spec = running
    assert code == 0
    assert out.split()[:2] == [b"yes", b"in-the-task"]
    assert out.split()[2].endswith(b"/scratch")
    assert spec.name.encode() in out


def test_input_is_read_until_it_is_closed(running):
    local, spec = running
    session = local.cluster.exec(spec.key, ("cat",))
    session.send(b"one\n")
    assert session.receive() == ("out", b"one\n")
    session.send(b"two\n")
    session.send(b"")
    assert outcome(session) == (b"two\n", b"", 0)


def test_a_lot_goes_through(running):
    out, _, code = run(*running, "sh", "-c", "head -c 20000000 /dev/zero")
    assert (len(out), code) == (20_000_000, 0)


def test_a_terminal(running):
    local, spec = running
    session = local.cluster.exec(
        spec.key, ("sh", "-c", "test -t 0 && tty; stty size; read x; stty size; echo got $x"), tty=True
    )
    session.resize(24, 80)
    session.send(b"")  # before it is read, the terminal's own end of input
    session.resize(50, 132)
    session.send(b"hello\n")
    out, _, code = outcome(session)
    assert code == 0
    assert b"/dev/" in out
    assert b"50 132" in out


def test_a_command_that_is_not_there(running):
    _, err, code = run(*running, "no-such-command")
    assert code == 127
    assert b"no-such-command" in err


def test_closing_the_session_ends_the_command(running):
    local, spec = running
    session = local.cluster.exec(spec.key, ("sh", "-c", "echo $$; exec sleep 599"))
    session.receive()
    session.close()
    session.close()
    wait_until(lambda: b"sleep 599" not in run(local, spec, "ps", "ax", "-o", "args")[0])


def test_the_command_ends_with_its_task(harmed):
    local, spec = harmed
    session = local.cluster.exec(spec.key, ("sleep", "600"))
    local.cluster.stop(spec.key, grace_seconds=5, reason="Cancelled")
    assert outcome(session)[2] != 0
    wait_until(lambda: local.phase(spec.key) == "Ended")
    with pytest.raises(NotFound):
        local.cluster.exec(spec.key, ("true",))


def test_an_agent_that_dies_ends_the_session(harmed):
    local, spec = harmed
    session = local.cluster.exec(spec.key, ("cat",))
    session.send(b"one\n")
    session.receive()
    local.kill("one", signal.SIGKILL)
    assert outcome(session)[2] != 0


def test_nothing_stays_open(running):
    local, spec = running
    run(local, spec, "true")
    agent = local.pid("one")
    ours, its = descriptors("self"), descriptors(agent)
    for _ in range(5):
        run(local, spec, "true")
    assert descriptors("self") == ours
    wait_until(lambda: descriptors(agent) <= its)


def descriptors(pid):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
