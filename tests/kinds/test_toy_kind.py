"""A new kind is two files: everything that handles objects takes Counter as it takes Job.

Real processes: the server and the command line load the two files as any plugin, the command line runs
as a user runs it. Nothing under `src/shoal` knows the kind.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.cluster.simulated import run_for
from shoal.objects.kinds import KINDS
from shoal.objects.meta import Metadata
from shoal.store.base import SYSTEM
from shoal.testing.local import nodes
from shoal.testing.plane import Plane, capacity
from tests.kinds.counter import Counter, CounterSpec
from tests.scenarios.standing import Ran, Standing, begin_cli, run_cli

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "shoal"
PLUGINS = {
    "SHOAL_KINDS": "tests.kinds.counter",
    "SHOAL_CONTROLLERS": "tests.kinds.counter_controller",
    "PYTHONPATH": str(ROOT),
}
SLOW, QUICK = "slow", "quick"


def counter(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "shoal.dev/v1alpha1",
        "kind": "Counter",
        "metadata": {"name": name},
        "spec": {"until": 3, **spec},
    }


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    path = tmp_path_factory.mktemp("kinds") / "home"
    with Standing(path, nodes(one={}), environment=PLUGINS) as made:
        yield made


class Shell:
    """`shoal` in processes of its own, over the home."""

    def __init__(self, standing: Standing) -> None:
        self.home = standing.home.path

    def __call__(self, *words: str, stdin: Any = None) -> Ran:
        given = b"" if stdin is None else json.dumps(stdin).encode()
        return run_cli(self.home, *words, stdin=given, environment=PLUGINS)

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "-o", "json").out)


@pytest.fixture(scope="module")
def sh(standing: Standing) -> Shell:
    return Shell(standing)


def request(standing: Standing, method: str, path: str, body: Any = None) -> Any:
    given = None if body is None else json.dumps(body).encode()
    return json.loads(standing.client.transport.request(method, path, body=given).body)


def printed(module: str) -> str:
    """What a generator prints, with the kind and without it in this process."""
    return subprocess.run(
        [sys.executable, "-m", module],
        capture_output=True, text=True, check=True, env=os.environ | PLUGINS, cwd=ROOT,
    ).stdout  # fmt: skip


def test_nothing_in_the_package_knows_the_kind() -> None:
    assert "Counter" not in KINDS
    assert sorted(path.name for path in Path(__file__).parent.glob("counter*.py")) == [
        "counter.py",
        "counter_controller.py",
    ]


def test_nothing_in_the_package_compares_kinds() -> None:
    """Generic code asks the declaration. Admission and the client's typed methods are about jobs."""
    switch = re.compile(r"isinstance\(\w+, (Job|Queue|Node)\b|\bis (not )?(JOB|QUEUE|NODE)\b")
    found = {
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for part in ("cli", "server", "client", "store", "control")
        for path in (PACKAGE / part).rglob("*.py")
        for line in path.read_text().splitlines()
        if switch.search(line)
    }
    assert found == set()


def test_it_is_applied_counts_is_waited_for_and_shown(sh: Shell) -> None:
    assert "counter/quick" in sh("apply", "-y", "-f", "-", stdin=counter(QUICK)).out.decode()
    waited = sh("wait", "counter/quick", "--timeout", "40s")
    assert (waited.code, "counter/quick succeeded after" in waited.out.decode()) == (0, True)
    assert sh("wait", "cnt/quick", "--for", "phase=Done", "--timeout", "40s").code == 0
    lines = [line.split() for line in sh("get", "counters", "-o", "wide").out.decode().splitlines()]
    assert lines[0] == ["NAME", "PHASE", "VALUE", "AGE", "STEP"]
    assert lines[1][:3] == ["quick", "Done", "3/3"]
    described = sh("describe", "counter/quick").out.decode()
    assert "spec.until:" in described
    assert "Created" in described  # the event of its creation
    assert "created by" in sh("events", "counter/quick").out.decode()


def test_explain_says_the_kinds_own_reason(sh: Shell) -> None:
    sh("apply", "-y", "-f", "-", stdin=counter(SLOW, until=1000, every="1h"))
    explained = sh("explain", "counter/slow").out.decode()
    assert "counter/slow is Counting (NotThereYet)" in explained
    assert "it has counted to 0 of 1000" in explained
    assert "it counts on by itself" in explained
    assert sh.json("explain", "CNT/slow")["evidence"] == {"value": 0, "until": 1000}


def test_its_verb_ends_it_and_the_exit_code_says_how(sh: Shell) -> None:
    sh("apply", "-y", "-f", "-", stdin=counter("ended", until=1000, every="1h"))
    assert "counter/ended is being cancelled" in sh("cancel", "counter/ended").out.decode()
    assert sh("wait", "counter/ended", "--timeout", "40s").code == 103
    refused = sh("suspend", "counter/ended")
    assert (refused.code, "counters do not support suspend" in refused.err) == (2, True)


def test_its_rules_are_checked_with_lines_and_names(sh: Shell) -> None:
    wrong = sh("apply", "-y", "-f", "-", stdin=counter("wrong", untill=4))
    assert wrong.code == 2
    assert "spec.untill: unknown field; did you mean until?" in wrong.err
    wrong = sh("apply", "-y", "-f", "-", stdin=counter("wrong", step=0))
    assert "spec.step: must be greater than 0; found 0" in wrong.err
    sh("apply", "-y", "-f", "-", stdin=counter("fixed", until=1))
    changed = sh("apply", "-y", "-f", "-", stdin=counter("fixed", until=1, step=2))
    assert (changed.code, "spec.step: cannot be changed after creation" in changed.err) == (2, True)
    assert "did you mean counters?" in sh("get", "countres").err
    assert "counter/fixed deleted" in sh("delete", "counter/fixed", "-y").out.decode()


def test_the_api_serves_it(standing: Standing, sh: Shell) -> None:
    path = "/api/v1/namespaces/default/counters"
    made = request(standing, "POST", path, counter("raw", until=2))
    assert made["metadata"]["submitter"]
    sh("wait", "counter/raw", "--timeout", "40s")
    read = request(standing, "GET", f"{path}/raw")
    assert read["status"]["phase"] == "Done"
    listed = request(standing, "GET", path)
    assert listed["kind"] == "CounterList"
    assert "raw" in [item["metadata"]["name"] for item in listed["items"]]
    assert request(standing, "GET", f"{path}/raw/explain")["phase"] == "Done"
    schema = request(standing, "GET", "/schema/counters")
    assert schema["properties"]["spec"]["properties"]["until"]["maximum"] == 1000
    assert (
        schema["properties"]["spec"]["properties"]["until"]["description"] == "The number to count to."
    )


def test_a_watch_shows_each_step(standing: Standing) -> None:
    path = "/api/v1/namespaces/default/counters"
    request(standing, "POST", path, counter("there", until=0))
    seen: list[tuple[str, str]] = []
    with begin_cli(standing.home.path, "get", "counters", "-w", environment=PLUGINS) as watching:
        assert watching.stdout is not None
        for line in watching.stdout:
            name, phase, value = line.decode().split()[:3]
            if name == "there" and phase == "Done" and not seen:
                request(standing, "POST", path, counter("seen"))
                seen.append(("Counting", "0/3"))
            elif name == "seen":
                seen.append((phase, value))
            if (name, phase) == ("seen", "Done"):
                break
        watching.terminate()
    steps = list(dict.fromkeys(seen))
    assert steps == [*(("Counting", f"{value}/3") for value in range(4)), ("Done", "3/3")]


def test_shell_completion_offers_the_kind_and_its_names(sh: Shell) -> None:
    sh("apply", "-y", "-f", "-", stdin=counter("named", until=0))
    words = {"_SHOAL_COMPLETE": "bash_complete", "SHOAL_COMPLETION_SECONDS": "30"}
    for typed, offered in (("count", "counters"), ("counter/na", "counter/named")):
        environment = PLUGINS | words | {"COMP_WORDS": f"shoal get {typed}", "COMP_CWORD": "2"}
        ran = run_cli(sh.home, environment=environment)
        assert offered in ran.out.decode(), typed


def test_generated_documents_have_it() -> None:
    page = printed("tools.reference")
    assert "\n# Counter\n" in page
    assert "| `until` | a whole number from 0 to 1000 | required | The number to count to. |" in page
    schemas = json.loads(printed("tools.openapi"))["components"]["schemas"]
    assert schemas["Counter"]["properties"]["kind"]["enum"] == ["Counter"]
    assert {"$ref": "#/components/schemas/Counter"} in schemas["List"]["properties"]["items"]["items"][
        "oneOf"
    ]


def test_the_controller_runs_in_virtual_time() -> None:
    """The plane takes its controllers from the same list as the server."""
    code = "from tests.kinds.test_toy_kind import count_in_virtual_time; count_in_virtual_time()"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | PLUGINS, cwd=ROOT)


def count_in_virtual_time() -> None:
    plane = Plane({"n0": capacity(1)}, run_for(1))
    made = Counter(metadata=Metadata(name="c"), spec=CounterSpec(until=5))
    plane.store.create(made, actor=SYSTEM)
    plane.advance(2)
    status = plane.store.get(Counter, "default", "c", actor=SYSTEM).status
    assert (status.phase, status.value) == ("Done", 5)
