"""The helper itself: it finds what is left of a home, and says so."""

import os
import subprocess
import sys

import pytest

from shoal.cluster.local.home import Home
from shoal.testing.local import LocalHome, leftovers, nodes, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_a_home_comes_and_goes(tmp_path):
    with LocalHome(tmp_path / "home", nodes(one={}, two={"cpu": 500, "labels": {"a": "b"}})) as local:
        states = {node.name: node for node in local.cluster.nodes()}
        assert states["two"].capacity.cpu == 500
        assert states["two"].labels == {"a": "b"}
        assert local.pid("one") and local.pid("one") != local.pid("two")
        assert not local.pid("server")
        assert leftovers(local.home)
    assert leftovers(local.home) == []


@pytest.mark.parametrize(
    "variable", ["SHOAL_HOME={home}", "SHOAL_OUTPUT={home}/output/default/uid"], ids=["home", "task"]
)
def test_processes_of_a_home_are_found(tmp_path, variable):
    home = Home(tmp_path / "home").create()
    name, _, value = variable.format(home=home.path).partition("=")
    environment = {name: value, "SHOAL_SCRATCH": "x"}
    words = [sys.executable, "-c", "import time; 'shoal.server'; time.sleep(600)"]
    process = subprocess.Popen(words, env=environment)
    try:
        wait_until(lambda: any(f"process {process.pid}:" in line for line in leftovers(home)))
    finally:
        process.kill()
        process.wait()
    assert leftovers(home) == []


def test_mounts_of_a_home_are_found(tmp_path):
    home = Home(tmp_path / "home").create()
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(home.log)], check=True)
    try:
        assert any(line.startswith("mount ") for line in leftovers(home))
    finally:
        subprocess.run(["umount", str(home.log)], check=True)
    assert leftovers(home) == []


def test_what_does_not_come_true_is_named():
    with pytest.raises(TimeoutError, match="the moon"):
        wait_until(lambda: False, 0.01, "the moon")
