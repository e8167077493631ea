"""A home on a disk that is really full: clear errors, nothing lost, and on once there is room."""

import pytest

from shoal.objects.errors import Unavailable
from shoal.testing.cluster import start_group
from shoal.testing.local import LocalHome, nodes, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_tasks_can_be_stopped_and_what_cannot_start_says_so(small_disk, make_spec, tmp_path):
    with LocalHome(small_disk.path / "home", nodes(one={})) as local:
        ends = make_spec(("sh", "-c", "until [ -e go ]; do sleep 0.05; done; exit 7"),
                         job="ends", working_directory=str(tmp_path))  # fmt: skip
        stays = make_spec(("sleep", "600"), job="stays")
        start_group(local.cluster, (ends, stays))
        wait_until(lambda: {local.phase(s.key) for s in (ends, stays)} == {"Running"})
        make_room = small_disk.fill()

        too_large = make_spec(("true",), env={"X": "y" * 1_000_000})
        with pytest.raises(Unavailable, match="cannot be written"):
            start_group(local.cluster, (too_large,))
        assert local.phase(too_large.key) == "Pending"
        local.cluster.stop(too_large.key, grace_seconds=0, reason="Cancelled")
        assert len(local.cluster.list().tasks) == 2

        (tmp_path / "go").touch()
        local.cluster.stop(stays.key, grace_seconds=5, reason="Cancelled")
        wait_until(lambda: {local.phase(s.key) for s in (ends, stays)} == {"Ended"})
        assert local.task(ends.key).outcome.exit_code == 7
        assert local.task(stays.key).outcome.stop_reason == "Cancelled"

        small = make_spec(("true",), job="small")
        start_group(local.cluster, (small,))
        wait_until(lambda: local.phase(small.key) == "Ended")
        assert local.task(small.key).outcome.reason == "StartFailed"

        make_room()
        after = make_spec(("true",), job="after")
        start_group(local.cluster, (after,))
        wait_until(lambda: local.phase(after.key) == "Ended")
        assert local.task(after.key).outcome.exit_code == 0


def test_an_agent_comes_up_on_a_full_disk(small_disk, make_spec):
    with LocalHome(small_disk.path / "home", nodes(one={})) as local:
        spec = make_spec(("sleep", "600"))
        start_group(local.cluster, (spec,))
        wait_until(lambda: local.phase(spec.key) == "Running")
        make_room = small_disk.fill()
        local.kill("one")
        local.up()
        wait_until(lambda: local.cluster.nodes()[0].ready)
        wait_until(lambda: local.phase(spec.key) == "Running")
        local.cluster.stop(spec.key, grace_seconds=5, reason="Cancelled")
        wait_until(lambda: local.phase(spec.key) == "Ended")
        make_room()
