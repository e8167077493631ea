"""Tasks that try to harm their node and its other tasks: real agents, real processes."""

import os
import sys

import pytest

from shoal.testing.cluster import start_group
from shoal.testing.local import wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]

NEST = """
import os
os.chdir(os.environ["SHOAL_SCRATCH"])
for _ in range(1500):
    os.mkdir("d")
    os.chdir("d")
print("nested")
"""


@pytest.mark.parametrize("isolation", ["default", "strict"])
def test_a_deep_tree_does_not_take_the_node_down(make_home, make_spec, isolation):
    local = make_home()
    spec = make_spec((sys.executable, "-c", NEST), isolation=isolation)
    start_group(local.cluster, (spec,))
    wait_until(lambda: local.phase(spec.key) == "Ended")
    assert local.task(spec.key).outcome.exit_code == 0
    pid = local.pid("one")
    local.cluster.acknowledge(spec.key)
    paths = local.home.node("one")
    wait_until(lambda: not any(paths.trash.iterdir()) and not any(paths.work.iterdir()))
    assert not any(paths.quarantine.iterdir())
    assert local.pid("one") == pid
    assert local.cluster.nodes()[0].problems == {}


def test_what_cannot_be_removed_is_put_aside_and_reported(make_home, make_spec):
    if os.geteuid() != 0 or os.system("command -v chattr >/dev/null") != 0:
        pytest.skip("needs root and chattr to make a file that cannot be removed")
    local = make_home()
    spec = make_spec(("sh", "-c", "touch $SHOAL_SCRATCH/kept; sleep 600"))
    start_group(local.cluster, (spec,))
    kept = local.home.node("one").work / f"default.{spec.name}" / "scratch" / "kept"
    wait_until(kept.exists)
    if os.system(f"chattr +i {kept}") != 0:
        pytest.skip("this file system has no immutable files")
    paths = local.home.node("one")
    try:
        local.cluster.stop(spec.key, grace_seconds=0, reason="Cancelled")
        wait_until(lambda: local.phase(spec.key) == "Ended")
        local.cluster.acknowledge(spec.key)
        wait_until(lambda: any(paths.quarantine.iterdir()))
        wait_until(lambda: "CleanupFailed" in local.cluster.nodes()[0].problems)
        assert "kept" in local.cluster.nodes()[0].problems["CleanupFailed"]
        after = make_spec(("true",))
        start_group(local.cluster, (after,))
        wait_until(lambda: local.phase(after.key) == "Ended")
        assert local.task(after.key).outcome.exit_code == 0
    finally:
        os.system(f"chattr -R -i {paths.quarantine} {paths.work} {paths.trash} 2>/dev/null")
    local.kill("one")
    local.up()
    wait_until(lambda: not any(paths.quarantine.iterdir()))
