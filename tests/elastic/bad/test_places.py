"""Surroundings that are wrong: addresses, keys and records of another machine, another attempt, nobody;
too few workers, too few samples, and none left."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from shoal.elastic import environment, wire
from shoal.elastic.errors import ElasticError
from tests.elastic.bad.reports import messages
from tests.elastic.bad.scripts import ends, run, write
from tests.elastic.forked import ForkedJob


@pytest.mark.parametrize("host", ["192.0.2.7", "0.0.0.0", "no-such-host.invalid", "2001:db8::1"])
@pytest.mark.parametrize("kind", ["folder", "platform"])
def test_an_address_of_another_machine_is_refused_before_anybody_waits_for_it(host: str, kind: str):
    told: dict[str, Mapping[str, str]] = {
        "folder": {"SHOAL_ELASTIC": "/nowhere"},
        "platform": {
            "SHOAL_RUNTIME": "elastic",
            "SHOAL_API": "unix:///nowhere",
            "SHOAL_TOKEN_FILE": "/nowhere",
            "SHOAL_ROLE": "worker",
            "SHOAL_INDEX": "0",
        },
    }
    with pytest.raises(ElasticError, match="set SHOAL_HOST to an address of this machine") as caught:
        environment.find({**told[kind], "SHOAL_HOST": host})
    assert f"cannot be reached at {host}: " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", '{"key": "k"}', '{"address": "nowhere", "key": "k"}', '{"address": "h:x"}'],
)
def test_an_address_file_that_says_nothing_is_as_good_as_none(tmp_path: Path, text: str):
    """It may be half written, or be of another program: who waits looks again."""
    (tmp_path / "coordinator.json").write_text(text)
    place = environment.find({"SHOAL_ELASTIC": str(tmp_path)})
    assert place is not None
    assert place.contact() is None


SCRIPT = """
job = elastic.init()
model, optimizer = job.wrap(model, optimizer)
for batch in job.shards(data, batch_size=16, epochs=10):
    time.sleep(0.02)
    step(batch)
finish()
"""


@pytest.mark.process
@pytest.mark.slow
def test_a_worker_says_that_the_coordinator_of_its_file_is_dead_and_goes_on_with_the_next(
    tmp_path: Path,
):
    """badinput-4. The file of a coordinator that was killed is still there."""
    with ForkedJob(tmp_path) as job:
        job.kill("coordinator")
        job.start("a", write(tmp_path, SCRIPT))
        log = tmp_path / "a.log"
        job.until(lambda: "waiting for the coordinator: " in log.read_text(), "it says so")
        assert "does not answer: " in log.read_text()
        job.start_coordinator()
        found = ends(job)
    assert found["a"].code == 0


@pytest.mark.process
@pytest.mark.slow
def test_a_worker_with_the_key_of_an_older_attempt_is_not_taken_in_and_says_so(tmp_path: Path):
    """badinput-4. Its file names an address that is now another job's coordinator's."""
    with ForkedJob(tmp_path / "new") as other, ForkedJob(tmp_path / "old") as job:
        job.kill("coordinator")
        old = json.loads((tmp_path / "old" / "coordinator.json").read_text())
        new = json.loads((tmp_path / "new" / "coordinator.json").read_text())
        stale = {"address": new["address"], "key": old["key"]}
        (tmp_path / "old" / "coordinator.json").write_text(json.dumps(stale))
        job.start("a", write(tmp_path / "old", SCRIPT))
        log = tmp_path / "old" / "a.log"
        job.until(lambda: "does not take the key of this job" in log.read_text(), "it says so")
        assert not messages(tmp_path / "new"), "the other job has not heard of it"
        assert other.coordinator is not None
        assert other.coordinator.poll() is None


@pytest.mark.process
@pytest.mark.slow
def test_a_sidecar_and_a_peer_with_an_older_key_are_closed_at_once(tmp_path: Path):
    """Stale keys of an older attempt: the one that says it hears nothing, not even an epoch's number."""
    with ForkedJob(tmp_path) as job:
        told = json.loads((tmp_path / "coordinator.json").read_text())
        for role in ("worker", "sidecar"):
            connection = wire.connect(told["address"], 5.0)
            hello = {"type": "hello", "role": role, "key": "of-yesterday", "name": "a", "incarnation": 1}
            connection.send({**hello, "address": "127.0.0.1:1", "epoch": 3, "step": 9})
            with pytest.raises(wire.Closed):
                connection.receive()
            connection.close()
        assert not messages(tmp_path)
        job.start("a", write(tmp_path, SCRIPT))
        assert ends(job)["a"].code == 0


@pytest.mark.process
@pytest.mark.slow
def test_a_record_of_an_earlier_attempt_gives_a_new_key_and_no_members(tmp_path: Path):
    """Workers of the earlier attempt that still run cannot speak to the new coordinator."""
    first = {"SHOAL_JOB_UID": "u", "SHOAL_ATTEMPT": "1"}
    with ForkedJob(tmp_path, environment=first) as job:
        old = json.loads((tmp_path / "coordinator.json").read_text())
        job.start("a", write(tmp_path, SCRIPT.replace("epochs=10", "epochs=100000")))
        job.until(lambda: len(job.lines("a")) > 3, "it trains")
        job.kill("coordinator")
        stale = dict(old)
        job.start_coordinator({"SHOAL_ATTEMPT": "2"})
        new = json.loads((tmp_path / "coordinator.json").read_text())
        assert new["key"] != old["key"]
        connection = wire.connect(new["address"], 5.0)
        connection.send({"type": "hello", "role": "sidecar", "name": "a", "incarnation": 1, **stale})
        with pytest.raises(wire.Closed):
            connection.receive()
        connection.close()
        # it finds the new key in the file, and is told that it is nobody
        log = tmp_path / "a.log"
        job.until(
            lambda: "put out, joins again: a (1) is no member any more" in log.read_text(), "fenced"
        )


@pytest.mark.process
@pytest.mark.slow
def test_fewer_workers_than_the_minimum_wait_and_say_so(tmp_path: Path):
    """badinput-4: before the first view, where nobody waits in a collective."""
    with ForkedJob(tmp_path, 3) as job:
        command = write(tmp_path, SCRIPT)
        job.start("a", command)
        job.start("b", command)
        for name in ("a", "b"):
            log = tmp_path / f"{name}.log"
            job.until(
                lambda log=log: "elastic: paused: 2 of at least 3" in log.read_text(), "it says so"
            )
            assert not job.lines(name)
        assert "waiting: 2 of at least 3 workers are here" in messages(tmp_path)
        job.kill("a", signal.SIGTERM)
        assert job.wait("a") == 0, "who waits may go at once"
        job.kill("b", signal.SIGTERM)
        assert job.wait("b") == 0


@pytest.mark.process
@pytest.mark.slow
def test_a_dataset_smaller_than_the_world_is_learned_once_an_epoch(tmp_path: Path):
    body = SCRIPT.replace("shards(data,", "shards(TensorDataset(*(t[:1] for t in data.tensors)),")
    found = run(tmp_path, body, ("a", "b", "c"))
    assert [end.code for end in found.values()] == [0, 0, 0], found
    lines = [json.loads(end.said.splitlines()[-1]) for end in found.values()]
    assert {line["step"] for line in lines} == {10}
    assert all(line["values"] == lines[0]["values"] for line in lines)


KEPT = SCRIPT.replace("init()", "init({options})").replace("epochs=10", "epochs=60")


@pytest.mark.process
@pytest.mark.slow
def test_when_all_are_dead_training_goes_on_from_the_checkpoint(tmp_path: Path):
    """training-N10: nobody begins at step 0."""
    options = f"checkpoint={str(tmp_path / 'kept')!r}, checkpoint_every=0.2"
    with ForkedJob(tmp_path) as job:
        command = write(tmp_path, KEPT.format(options=options))
        job.start("a", command)
        job.until(lambda: len(job.lines("a")) > 100, "checkpoints are written")
        job.kill("a")
        before = job.lines("a")[-1]["step"]
        job.start("b", command)
        found = ends(job)
    assert found["b"].code == 0
    assert "resumed from the checkpoint of step " in found["b"].said
    first = json.loads(next(line for line in found["b"].said.splitlines() if line.startswith("{")))
    assert 1 < first["step"] <= before + 1
    assert json.loads(found["b"].said.splitlines()[-1])["step"] == 240


@pytest.mark.process
@pytest.mark.slow
def test_when_all_are_dead_and_nothing_was_kept_the_job_says_so_and_ends(tmp_path: Path):
    with ForkedJob(tmp_path) as job:
        command = write(tmp_path, KEPT.format(options=""))
        job.start("a", command)
        job.until(lambda: len(job.lines("a")) > 60, "steps are committed")
        job.kill("a")
        job.start("b", command)
        found = ends(job)
        job.until(lambda: job.coordinator and job.coordinator.poll() is not None, "the job ends")
        ended = (tmp_path / "coordinator.log").read_text()
    assert found["b"].code == 1
    assert "there is no checkpoint to go on from: give elastic.init(checkpoint=...) a folder" in ended
    assert "there is no checkpoint to go on from" in found["b"].sentence
    assert not [line for line in found["b"].said.splitlines() if line.startswith("{")], "no step 0"


def test_the_default_address_is_of_this_machine():
    place = environment.find({"SHOAL_ELASTIC": "/nowhere", "SHOAL_HOST": ""})
    assert place is not None
    assert place.host == "127.0.0.1"
    assert socket.gethostname() in place.name


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(not socket.has_ipv6, reason="two addresses that do not reach each other need IPv6")
def test_workers_that_do_not_reach_each_other_are_told_their_addresses(tmp_path: Path):
    """badinput-5: a wrong network interface. They wait, and try again every two seconds."""
    with ForkedJob(tmp_path, 2) as job:
        command = write(tmp_path, SCRIPT)
        job.start("a", command, {"SHOAL_HOST": "127.0.0.1"})
        job.start("b", command, {"SHOAL_HOST": "::1"})
        for name in ("a", "b"):
            log = tmp_path / f"{name}.log"
            job.until(lambda log=log: "set SHOAL_HOST on each machine" in log.read_text(), "it says so")
            assert "elastic: not all workers reach each other (" in log.read_text()
            assert not job.lines(name), "nothing is learned apart"
        told = "\n".join(messages(tmp_path))
        assert "every worker was lost" not in told
