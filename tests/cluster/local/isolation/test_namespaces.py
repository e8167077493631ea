"""Namespaces that the kernel refuses are told by the isolation that needed them. In processes apart."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.cluster.local.isolation import namespaces, privileges

pytestmark = [pytest.mark.process, pytest.mark.slow]

SOURCE = str(Path(__file__).parents[4] / "src")


def refusing(*kinds, names):
    """What `leave` says in a process to which the kernel refuses these kinds of namespaces."""
    program = (
        "import json, sys\n"
        "from shoal.cluster.local.isolation import namespaces, privileges, syscalls\n"
        "refused = sum(namespaces.KINDS[kind] for kind in json.loads(sys.argv[1]))\n"
        "unshare = syscalls.unshare\n"
        "def refuse(flags):\n"
        "    if flags & refused: raise OSError(1, 'Operation not permitted', 'unshare')\n"
        "    unshare(flags)\n"
        "syscalls.unshare = refuse\n"
        "try: namespaces.leave(json.loads(sys.argv[2])); print('{}')\n"
        "except namespaces.Ungranted as refusal: print(json.dumps(refusal.reasons))\n"
    )
    words = [sys.executable, "-c", program, json.dumps(kinds), json.dumps(names)]
    done = subprocess.run(words, env={"PYTHONPATH": SOURCE}, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


NAMES = ["processes", "tmp", "home", "ipc", "privileges", "cpu"]


def test_all_are_granted_or_all_refused_alike():
    assert refusing(names=NAMES) in ({}, refusing("user", "mnt", "ipc", "pid", names=NAMES))


def test_what_needs_no_namespace_is_never_refused():
    assert (
        refusing("user", "mnt", "ipc", "pid", "net", "uts", names=["privileges", "cpu", "memory"]) == {}
    )


def test_one_that_is_refused_costs_what_needs_it():
    if refusing(names=NAMES):
        pytest.skip("this machine grants no namespaces")
    assert set(refusing("ipc", names=NAMES)) == {"ipc"}
    assert set(refusing("pid", names=NAMES)) == {"processes"}
    assert set(refusing("mnt", names=NAMES)) == {"processes", "tmp", "home"}


def test_the_kinds_in_the_order_of_entering():
    user = [] if privileges.sufficient() else ["user"]
    assert namespaces.kinds(NAMES) == [*user, "mnt", "ipc", "pid"]
    assert namespaces.kinds(["network", "system"]) == [*user, "net", "mnt", "uts"]
    assert namespaces.kinds(["cpu"]) == []
