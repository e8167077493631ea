"""Two hostile jobs side by side take nothing of each other's, as root and as an unprivileged user.

On a machine that grants every isolation (continuous integration's does: root, control groups) all of
them are tried in both modes. Elsewhere the tests try what the node promises and say what it does not;
`SHOAL_REQUIRE=isolation` makes that a failure.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import shoal
from shoal.cluster.local.isolation import namespaces
from tests.scenarios.hostile import Account, play
from tests.support.require import require

pytestmark = [pytest.mark.process, pytest.mark.slow]

SOMEBODY = 64_999
"""A user id that nobody has."""
AS_SOMEBODY = [
    "setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups", "--inh-caps=-all",
]  # fmt: skip


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that any user can be given: not below pytest's own, which are closed to others."""
    made = Path(tempfile.mkdtemp(prefix="shoal-hostile-", dir="/var/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize("mode", ["default", "strict"])
def test_neither_takes_anything_of_the_others(folder: Path, mode: str) -> None:
    judge(play(folder, mode))


@pytest.mark.parametrize("mode", ["default", "strict"])
def test_nor_does_it_for_an_unprivileged_user(folder: Path, mode: str) -> None:
    account = play_as_somebody(folder, mode)
    judge(account)
    lacking = {name for name, state in account.states.items() if state != "enforced"}
    assert lacking <= {"cpu", "memory"}, "nothing but limits needs more than user namespaces"


def judge(account: Account) -> None:
    """Nothing that was promised was broken; what was not promised is said."""
    lacking = {n: why for n, why in account.states.items() if why != "enforced"}
    if account.mode == "strict" and lacking:
        assert account.refused.startswith("IsolationUnavailable"), account
        assert all(name in account.refused for name in lacking), account.refused
    else:
        assert not account.refused
        assert len(account.attacks) > 25
        assert not account.broken, "\n".join(account.broken)
        assert not account.harm, "\n".join(account.harm)
        wanted = namespaces.STRICT if account.mode == "strict" else namespaces.DEFAULT
        told = {each.partition(":")[0] for each in account.unenforced}
        assert told == {name for name in wanted if name in lacking}, "the task's own list says the same"
    if os.geteuid() == 0 and lacking and account.states.get("processes") != "enforced":
        require("isolation", f"this machine does not enforce {lacking}")


def play_as_somebody(folder: Path, mode: str) -> Account:
    """`play` by a user without privileges, in a process of its own."""
    if os.geteuid() != 0:
        pytest.skip("this user is unprivileged: the other tests are for it")
    python = _python_for_everybody()
    os.chown(folder, SOMEBODY, SOMEBODY)
    packages = [path for path in sys.path if path.endswith("site-packages")]
    search = [Path(__file__).parents[2], Path(shoal.__file__).parents[1], *packages]
    done = subprocess.run(
        [*AS_SOMEBODY, python, "-m", "tests.scenarios.hostile", str(folder), mode],
        env={"PATH": os.defpath, "HOME": str(folder), "PYTHONPATH": os.pathsep.join(map(str, search))},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Account(**json.loads(done.stdout.splitlines()[-1]))


def _python_for_everybody() -> str:
    """A Python of this version that the other user may run, with our packages readable."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = [sys.executable, shutil.which(version, path=os.defpath)]
    # the second exec tells: setpriv's own is still done with root's capabilities
    reads = f"open({shoal.__file__!r}).close()"
    again = f"import os, sys; os.execv(sys.executable, [sys.executable, '-c', {reads!r}])"
    for python in filter(None, found if shutil.which("setpriv") else []):
        tried = subprocess.run([*AS_SOMEBODY, python, "-c", again], capture_output=True, check=False)
        if tried.returncode == 0:
            return python
    return require("setpriv", f"there is no setpriv, or no {version} that another user may run")
