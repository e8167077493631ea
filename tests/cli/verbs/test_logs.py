from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.client import Client
from shoal.objects.job import ArraySpec, Job, Role
from tests.cli.conftest import Shell
from tests.cli.world import a_cluster, status, write_log
from tests.server.harness import LiveServer, a_job


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "home", cluster=a_cluster())
    yield live
    live.close()


@pytest.fixture
def pair(client: Client) -> Job:
    return client.create(a_job("pair", roles=(Role(command=("x",), replicas=2),)))


@pytest.mark.slow
def test_one_task_is_bare(sh: Shell, server: LiveServer, client: Client) -> None:
    job = client.create(a_job("train"))
    write_log(server, job, 0, b"one\ntwo\nno end")
    assert sh("logs", "train").out == "one\ntwo\nno end"
    assert sh("logs", "train", "--tail", "1").out == "no end"
    assert sh("logs", "train", "--prefix").out == "[worker 0] one\n[worker 0] two\n[worker 0] no end\n"


def test_several_tasks_are_named(sh: Shell, server: LiveServer, pair: Job) -> None:
    write_log(server, pair, 0, b"from zero\n")
    write_log(server, pair, 1, b"from one\n")
    assert sorted(sh("logs", "job/pair").lines) == ["[worker 0] from zero", "[worker 1] from one"]
    assert sh("logs", "job/pair", "--rank", "1").out == "from one\n"
    assert sh("logs", "job/pair", "--role", "worker", "--no-prefix", "--rank", "0").out == "from zero\n"


def test_documents_and_what_there_is_not(sh: Shell, server: LiveServer, pair: Job) -> None:
    assert sh("logs", "pair").err == "job/pair has written nothing yet: it is Pending\n"
    wrong = sh("logs", "pair", "--role", "ps")
    assert (wrong.code, "hint: its roles are worker" in wrong.err) == (3, True)
    write_log(server, pair, 1, b"one\n")
    document = sh("logs", "pair", "-o", "json").document
    assert (document["role"], document["index"], document["text"]) == ("worker", 1, "one\n")


@pytest.mark.slow
def test_the_start_before(sh: Shell, server: LiveServer, client: Client) -> None:
    job = client.create(a_job("train"))
    write_log(server, job, 0, b"first\n", incarnation=1)
    write_log(server, job, 0, b"second\n", incarnation=2)
    assert sh("logs", "train").out == "second\n"
    assert sh("logs", "train", "--previous").out == "first\n"
    assert sh("logs", "train", "--incarnation", "1").out == "first\n"
    assert sh("logs", "train", "--incarnation", "1", "-f").code == 2
    third = sh("logs", "train", "--incarnation", "3")
    assert (third.code, third.out) == (3, "")
    assert "has a log of a start 3\nhint: index=starts so far: worker 0=2" in third.err


def test_an_earlier_start_that_never_was_is_not_found(
    sh: Shell, server: LiveServer, client: Client
) -> None:
    role = Role(command=("x",), replicas=2, min_replicas=1)
    job = client.create(a_job("elastic", runtime="elastic", roles=(role,)))
    write_log(server, job, 0, b"once\n")
    said = sh("logs", "elastic", "--previous")
    assert (said.code, said.out) == (3, "")
    assert "no task of job elastic has a log of an earlier start" in said.err


def test_an_index_that_is_not_there_is_not_found(sh: Shell, server: LiveServer, client: Client) -> None:
    role = Role(command=("x",))
    client.create(a_job("arr", roles=(role,), array=ArraySpec(indices="0-99")))
    said = sh("logs", "arr", "--rank", "1000")
    assert (said.code, said.out) == (3, "")
    assert "job arr has no task with index 1000\nhint: its tasks are worker 0-99\n" in said.err
    assert sh("logs", "arr", "--rank", "99").code == 0
    assert sh("logs", "arr", "--rank", "1000", "-f").code == 3


@pytest.mark.slow
@pytest.mark.parametrize(("phase", "code"), [("Succeeded", 0), ("Failed", 100), ("Cancelled", 103)])
def test_following_ends_with_the_job(
    sh: Shell, server: LiveServer, client: Client, phase: str, code: int
) -> None:
    job = client.create(a_job("train"))
    write_log(server, job, 0, b"all\n")
    status(server, job, phase=phase, finished=9.0)
    said = sh("logs", "-f", "train")
    assert (said.code, said.out) == (code, "all\n")


def test_ctrl_c_only_stops_following(
    sh: Shell, server: LiveServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = client.create(a_job("train"))
    write_log(server, job, 0, b"so far\n")

    def logs(self: Client, *_: Any, **__: Any) -> Iterator[Any]:
        yield from real(self, *_, **{**__, "follow": False})
        raise KeyboardInterrupt

    real = Client.logs
    monkeypatch.setattr(Client, "logs", logs)
    said = sh("-n", "default", "logs", "-f", "train")
    assert (said.code, said.out) == (130, "so far\n")
    assert "shoal -n default logs -f job/train" in said.err
    assert not client.get(Job, "default", "train").spec.cancelled


def test_a_job_that_is_not_there(sh: Shell, server: LiveServer) -> None:
    said = sh("logs", "nope")
    assert (said.code, "hint: `shoal get jobs` lists them" in said.err) == (3, True)
    assert sh("logs", "-f", "nope").code == 102


def test_bytes_are_passed_on_as_they_are(
    server: LiveServer, client: Client, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    from shoal.cli.main import shoal

    job = client.create(a_job("train"))
    write_log(server, job, 0, b"\xff\xfe\x00\x1b[0m\n")
    with pytest.raises(SystemExit):
        shoal.main(["logs", "train"])
    assert capfdbinary.readouterr().out == b"\xff\xfe\x00\x1b[0m\n"


@pytest.mark.slow
def test_following_while_it_is_written(sh: Shell, server: LiveServer, client: Client) -> None:
    job = client.create(a_job("train"))
    write_log(server, job, 0, b"first\n")

    def go_on() -> None:
        write_log(server, job, 0, b"second\n")
        status(server, job, phase="Succeeded", finished=9.0)

    later = threading.Timer(0.2, go_on)
    later.start()
    said = sh("logs", "-f", "train")
    later.join()
    assert (said.code, said.out) == (0, "first\nsecond\n")
