import contextlib
import os
import socket

import msgspec
import pytest

from shoal.cluster.base import Refused
from shoal.cluster.local import admission as ports_module
from shoal.cluster.local.admission import BLOCK_PORTS, RENDEZVOUS, Ports
from shoal.cluster.local.ledger import Ledger, Progress, Record
from shoal.objects.task import Endpoint, Placement, TaskSpec


def spec(index=0, names=(), job_uid="uid"):
    return TaskSpec(
        namespace="default", name=f"t{index}", job="job", job_uid=job_uid, role="worker", index=index,
        attempt=1, incarnation=1, placement=Placement(node="n"), command=("true",),
        ports=dict.fromkeys(names, 0),
    )  # fmt: skip


@pytest.fixture
def opened(tmp_path):
    """Makes a node's ports, with its ledger."""
    with contextlib.ExitStack() as stack:

        def open_ports(name, seed="seed"):
            ledger = Ledger(tmp_path / name)
            stack.callback(ledger.close)
            ports = Ports(name, ledger, seed)
            stack.callback(ports.close)
            return ports, ledger

        yield open_ports


def test_every_task_has_one_for_rendezvous_and_those_it_names(opened):
    ports, ledger = opened("a")
    leased = ports.lease(spec(names=("http", "metrics")))
    assert sorted(leased) == ["http", "metrics", RENDEZVOUS]
    assert len(set(leased.values())) == 3
    assert set(ledger.leases.values()) == set(leased.values())


def test_a_replica_that_starts_again_has_the_same(opened):
    ports, ledger = opened("a")
    first = ports.lease(spec(1, ("http",)))
    ports.lease(spec(2, ("http",)))
    assert ports.lease(spec(1, ("http",))) == first
    ledger.commit()
    ports.close()
    ledger.close()
    again, _ = opened("a")
    assert again.lease(spec(1, ("http",))) == first


def test_a_strict_job_has_the_number_it_asks_for_in_a_network_of_its_own(opened):
    ports, ledger = opened("a")

    def strict(index):
        asked = spec(index, ("http",))
        return msgspec.structs.replace(asked, isolation="strict", ports={"http": 8080})

    first, second = ports.lease(strict(0)), ports.lease(strict(1))
    assert first["http"] == 8080
    assert 8080 not in (first[RENDEZVOUS], *second.values(), *ledger.leases.values())
    assert ports.hold(first.values()), "there is nothing of ours to hold for it"
    assert len(ports.claims(first.values())) == 1


def test_several_agents_never_lease_the_same(opened):
    seen = set()
    for name in ("a", "b", "c"):
        ports, _ = opened(name)  # the same seed: they try the same blocks
        for index in range(BLOCK_PORTS):
            leased = set(ports.lease(spec(index)).values())
            assert not leased & seen
            seen |= leased


def test_a_port_that_a_stranger_uses_is_passed_over(opened):
    ports, _ = opened("a")
    port = ports.lease(spec(1))[RENDEZVOUS]
    with socket.create_server(("127.0.0.1", port)):
        moved = ports.lease(spec(1))[RENDEZVOUS]
        assert moved != port
        others = {ports.lease(spec(index))[RENDEZVOUS] for index in range(2, 2 * BLOCK_PORTS)}
        assert port not in others


def test_a_port_whose_connections_have_just_closed_is_not_in_use(opened):
    ports, _ = opened("a")
    port = ports.lease(spec(1))[RENDEZVOUS]
    with socket.create_server(("127.0.0.1", port)) as server:
        client = socket.create_connection(("127.0.0.1", port))
        served, _ = server.accept()
        served.close()  # ours closes first, so TIME_WAIT is on the port
        client.recv(1)
        client.close()
    assert ports.lease(spec(1))[RENDEZVOUS] == port


def test_forgetting_a_job_frees_its_ports(opened):
    ports, ledger = opened("a")
    ports.lease(spec(1, job_uid="one"))
    kept = ports.lease(spec(1, job_uid="two"))
    ports.forget_job("default", "one")
    assert set(ledger.leases.values()) == set(kept.values())


def test_ports_run_out_only_for_what_runs(opened, monkeypatch):
    first = ports_module._FIRST_PORT
    monkeypatch.setattr(ports_module, "_blocks", lambda: [first, first + BLOCK_PORTS])
    monkeypatch.setattr(ports_module, "_PART_OF_BLOCKS", 1)
    ports, ledger = opened("a")

    def start(index):
        task = spec(index)
        leased = ports.lease(task)
        endpoint = Endpoint(role="worker", index=index, task=task.name, node="a", host="", ports=leased)
        ledger.put(Record(spec=task, progress=Progress(endpoint=endpoint, admitted=0.0)))

    room = 2 * (BLOCK_PORTS - 1)
    for index in range(room // 2):
        ports.lease(spec(10_000 + index))  # replicas that do not run any more
    for index in range(room):
        start(index)
    with pytest.raises(Refused) as caught:
        start(room)
    assert caught.value.reason == "PortTaken"


def test_a_claim_lives_as_long_as_any_holder(opened):
    """A supervisor keeps its task's ports from others while the agent is away."""
    ports, ledger = opened("a")
    port = ports.lease(spec(1))[RENDEZVOUS]
    (claim,) = ports.claims([port])
    held = os.dup(claim)
    ledger.commit()
    ports.close()
    ledger.close()
    stranger, _ = opened("b")
    block = ports_module._block_of
    assert block(port) != block(stranger.lease(spec(1))[RENDEZVOUS])
    back, _ = opened("a")
    assert not back.hold([port])  # its supervisor has it
    assert back.lease(spec(1))[RENDEZVOUS] != port
    os.close(held)
    assert back.hold([port])


def start(ports, ledger, index, job_uid="uid", names=()):
    task = spec(index, names, job_uid)
    leased = ports.lease(task)
    endpoint = Endpoint(role="worker", index=index, task=task.name, node="a", host="", ports=leased)
    record = Record(spec=task, progress=Progress(endpoint=endpoint, admitted=0.0))
    ledger.put(record)
    return record


def test_one_job_does_not_take_all_ports(opened, monkeypatch):
    monkeypatch.setattr(ports_module, "JOB_PORTS", 100)
    ports, ledger = opened("a")
    greedy = [start(ports, ledger, index, "greedy", ("http",)) for index in range(50)]
    with pytest.raises(Refused, match="one job may have 100") as caught:
        start(ports, ledger, 50, "greedy")
    assert caught.value.reason == "PortTaken"
    assert ports.lease(spec(1, job_uid="other"))
    assert ports.lease(greedy[0].spec) == greedy[0].progress.endpoint.ports
    ledger.remove(greedy[0])
    assert start(ports, ledger, 50, "greedy")  # what no longer runs makes room for the rest of its job


@pytest.mark.slow
def test_a_node_leaves_blocks_to_others(opened):
    ports, ledger = opened("a")
    quarter = len(ports._blocks) // 4
    with pytest.raises(Refused):
        for index in range(len(ports._blocks) * BLOCK_PORTS):
            start(ports, ledger, index, f"job{index}")
    assert len(ports._claims) == quarter
    other, _ = opened("b")
    assert other.lease(spec(1))


def test_a_deleted_jobs_blocks_are_given_up(opened):
    ports, ledger = opened("a")
    for index in range(5 * BLOCK_PORTS):
        start(ports, ledger, index, "gone")
    kept = start(ports, ledger, 0, "kept")
    claimed = set(ports._claims)
    for index in range(5 * BLOCK_PORTS):
        del ledger.tasks[spec(index, job_uid="gone").key]
    ports.forget_job("default", "gone")
    assert len(ports._claims) <= 2
    for first in claimed - set(ports._claims):
        with socket.socket() as free:
            free.bind(("127.0.0.1", first))
    assert ports.lease(kept.spec) == kept.progress.endpoint.ports
    assert ports.lease(spec(9, job_uid="new"))
