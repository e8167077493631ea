from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from shoal.cli.verbs import get
from shoal.client import Client
from shoal.client.watch import Change
from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from shoal.objects.meta import Metadata
from shoal.objects.queue import Queue
from shoal.store.base import SYSTEM
from shoal.testing.store.harness import newer_job
from tests.cli.conftest import Shell
from tests.cli.world import status
from tests.server.harness import LiveServer, a_job, eventually


@pytest.fixture(autouse=True)
def some_jobs(client: Client) -> None:
    for name in ("a", "b", "c"):
        client.create(a_job(name))
    client.create(a_job("elsewhere", namespace="team-a"))


def test_a_table_of_one_namespace(sh: Shell) -> None:
    said = sh("get", "jobs")
    assert said.code == 0
    assert said.lines[0].split()[:3] == ["NAME", "PHASE", "TASKS"]
    assert [line.split()[:2] for line in said.lines[1:]] == [[n, "Pending"] for n in ("a", "b", "c")]
    assert said.err == ""


def test_every_word_for_a_kind_means_the_kind(sh: Shell) -> None:
    assert (
        sh("get", "j", "-o", "name").out == sh("get", "Job", "-o", "name").out == "job/a\njob/b\njob/c\n"
    )


def test_other_namespaces(sh: Shell) -> None:
    assert sh("get", "jobs", "-n", "team-a", "-o", "name").out == "job/elsewhere\n"
    everything = sh("get", "jobs", "-A")
    assert everything.lines[0].startswith("NAMESPACE")
    assert everything.lines[-1].split()[:2] == ["team-a", "elsewhere"]


def test_wide_shows_more(sh: Shell) -> None:
    assert "RUNTIME" in sh("get", "jobs", "-o", "wide").lines[0]


def test_objects_by_name(sh: Shell) -> None:
    assert sh("get", "job/b", "-o", "name").out == "job/b\n"
    assert sh("get", "jobs", "c", "a", "-o", "name").out == "job/c\njob/a\n"
    mixed = sh("get", "job/a", "queue/default")
    assert [line.split()[0] for line in mixed.lines] == ["NAME", "a", "NAME", "default"]


def test_a_document_is_the_object_as_the_server_has_it(sh: Shell, client: Client) -> None:
    one = sh("get", "job/a", "-o", "json").document
    assert one == json.loads(client.record(JOB, "default", "a").document)
    listed = sh("get", "jobs", "--json").document
    assert (listed["kind"], listed["metadata"]["remaining"]) == ("JobList", 0)
    assert listed["items"][0] == one
    assert sh("get", "job/a", "job/b", "--json").document["kind"] == "List"


def test_yaml_can_be_applied_again(sh: Shell) -> None:
    text = sh("get", "job/a", "-o", "yaml").out
    assert text.startswith("apiVersion: shoal.dev/v1alpha1\nkind: Job\n")
    again = sh("apply", "-y", "-f", "-", "-o", "json", input=text)
    assert again.code == 0, again.err


def test_a_cut_list_says_so(sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    said = sh("get", "jobs", "--limit", "2")
    assert len(said.lines) == 3
    assert said.err == "showing the newest 2 of 3; --limit 0 shows all\n"
    assert len(sh("get", "jobs", "--limit", "0").lines) == 4
    monkeypatch.setattr(get, "_ROWS", 1)
    assert "showing the newest 1 of 3" in sh("get", "jobs").err
    assert len(sh("get", "jobs", "-o", "name").lines) == 3  # what programs read is never cut unasked
    cut = sh("get", "jobs", "--limit", "1", "-o", "json")
    assert cut.document["metadata"]["remaining"] == 2


def test_a_list_is_read_page_by_page(sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sh("get", "jobs", "-o", "name").lines
    sizes: list[int] = []
    listed = Client.list

    def counted(self: Client, *arguments: Any, **options: Any) -> Any:
        page = listed(self, *arguments, **options)
        sizes.append(len(page.records))
        return page

    monkeypatch.setattr(Client, "list", counted)
    monkeypatch.setattr(get, "_PAGE", 2)
    assert sh("get", "jobs", "-o", "name").lines == whole
    assert sizes == [2, 1]
    said = sh("get", "jobs", "--limit", "1")
    assert f"job/{said.lines[-1].split()[0]}" == whole[-1]
    assert "showing the newest 1 of 3" in said.err


def test_labels(sh: Shell, client: Client) -> None:
    client.create(Queue(metadata=Metadata(name="q", namespace="", labels={"team": "a"})))
    assert sh("get", "queues", "-l", "team=a", "-o", "name").out == "queue/q\n"
    assert sh("get", "queues", "-l", "!team", "-o", "name").out == "queue/default\n"
    wrong = sh("get", "queues", "-l", "team=(")
    assert wrong.code == 2


def test_nothing_there_is_said_apart_from_data(sh: Shell) -> None:
    said = sh("get", "jobs", "-n", "empty")
    assert (said.code, said.out, said.err) == (0, "", "there are no jobs in namespace empty\n")
    assert sh("get", "jobs", "-n", "empty", "--json").document["items"] == []


def test_what_is_missing_is_exit_code_3_and_the_rest_is_shown(sh: Shell) -> None:
    said = sh("get", "jobs", "a", "nope")
    assert said.code == 3
    assert [line.split()[0] for line in said.lines] == ["NAME", "a"]
    assert "nope" in said.err
    documented = sh("get", "jobs", "a", "nope", "--json")
    assert documented.document["code"] == "NotFound"


def test_an_unknown_kind_is_named_with_the_nearest(sh: Shell) -> None:
    said = sh("get", "jbos")
    assert (said.code, said.err.splitlines()[1]) == (
        3,
        "hint: for a job of this name write job/jbos; did you mean jobs?",
    )


@pytest.mark.slow
def test_names_exclude_lists(sh: Shell) -> None:
    assert sh("get", "job/a", "-A").code == 2
    assert sh("get", "job/a", "-l", "x=y").code == 2
    assert sh("get", "job/a", "queue/default", "-w").code == 2


def _until(enough: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `-w` end as Ctrl-C would end it, once `enough` is set and all changes are shown."""
    real = Client.reflect

    def reflect(self: Client, kind: Any, namespace: str = "") -> Iterator[Change]:
        for change in real(self, kind, namespace):
            yield change
            if enough.is_set() and change.type == "Deleted":
                raise KeyboardInterrupt

    monkeypatch.setattr(Client, "reflect", reflect)


@pytest.mark.parametrize("output", ["table", "json", "name"])
def test_watching_shows_each_change(
    sh: Shell, server: LiveServer, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    over = threading.Event()
    _until(over, monkeypatch)

    def change() -> None:
        with server.client() as other:
            eventually(lambda: any("watch jobs" in t.name for t in threading.enumerate()))
            other.create(a_job("new"))
            over.set()
            other.delete(JOB, "default", "new")

    changer = threading.Thread(target=change)
    changer.start()
    said = sh("get", "jobs", "-w", "-o", output)
    changer.join()
    assert said.code == 130
    if output == "json":
        steps = [json.loads(line) for line in said.lines]
        assert [s["type"] for s in steps][:4] == ["Added"] * 4
        assert steps[-1]["type"] == "Deleted"
        assert steps[-1]["object"]["metadata"]["name"] == "new"
    elif output == "name":
        assert said.lines == ["job/a", "job/b", "job/c", "job/new", "job/new"]
    else:
        assert [line.split()[0] for line in said.lines] == ["NAME", "a", "b", "c", "new", "new"]


def test_the_newest_are_last_and_stay_within_the_limit(sh: Shell, client: Client) -> None:
    time.sleep(0.002)  # stamps are in milliseconds
    client.create(a_job("a-later"))
    assert sh("get", "jobs", "-o", "name").lines[-1] == "job/a-later"
    said = sh("get", "jobs", "--limit", "1")
    assert [line.split()[0] for line in said.lines] == ["NAME", "a-later"]
    assert "showing the newest 1 of 4; --limit 0 shows all" in said.err


def test_by_phase_and_by_column(sh: Shell, server: LiveServer, client: Client) -> None:
    status(server, client.get(Job, "default", "b"), phase="Failed", finished=9.0, restarts=2)
    status(server, client.get(Job, "default", "a"), phase="Running", restarts=10)
    assert sh("get", "jobs", "--phase", "failed", "-o", "name").out == "job/b\n"
    both = sh("get", "jobs", "--phase", "Failed,Running", "-o", "json").document
    assert {item["metadata"]["name"] for item in both["items"]} == {"a", "b"}
    assert sh("get", "jobs", "--sort-by", "restarts", "-o", "name").lines == ["job/c", "job/b", "job/a"]
    assert sh("get", "jobs", "--phase", "Cancelled").err.endswith("default in phase Cancelled\n")
    for wrong, hint in (
        (["--phase", "Fialed"], "the phases are Pending"),
        (["--sort-by", "restart"], "did you mean restarts?"),
    ):
        said = sh("get", "jobs", *wrong)
        assert (said.code, hint in said.err) == (2, True)
    assert sh("get", "nodes", "--phase", "Failed").code == 2


def test_a_watch_begins_with_the_newest_only(
    sh: Shell, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reflect = Client.reflect

    def until_synced(self: Client, *words: Any) -> Iterator[Change]:
        for change in reflect(self, *words):
            yield change
            if change.type == "Synced":
                raise KeyboardInterrupt

    monkeypatch.setattr(Client, "reflect", until_synced)
    assert len(sh("get", "jobs", "-w").lines) == 4
    assert len(sh("get", "jobs", "-w", "--limit", "2").lines) == 3
    assert len(sh("get", "jobs", "-w", "--limit", "2", "-o", "json").lines) == 2


def test_what_this_version_cannot_decode_hides_no_other_object(server: LiveServer, sh: Shell) -> None:
    server.store.create(newer_job("b2"), actor=SYSTEM)
    said = sh("get", "jobs")
    assert said.code == 0
    assert [line.split()[0] for line in said.lines[1:]] == ["a", "b", "c"]
    assert "job/default/b2 cannot be decoded by this version of Shoal" in said.err
    assert sh("get", "jobs", "-o", "name").out == "job/b2\njob/a\njob/b\njob/c\n"
    assert '"quantum"' in sh("get", "job/b2", "-o", "json").out
    one = sh("get", "job/b2")
    assert one.code != 0 and "cannot be decoded by this version of Shoal" in one.err
    assert "Shoal itself went wrong" not in one.err
    assert sh("delete", "job/b2", "-y").out == "job/b2 deleted\n"
    assert sh("get", "jobs").err == ""
