"""What tasks use, and whether they idle."""

import pytest

from shoal.objects.errors import NotFound
from shoal.testing.local import wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_cpu_and_memory_of_a_task_that_runs_and_of_one_that_has_ended(
    make_home, make_spec, tell_nothing
):
    local = make_home()
    burn = (
        "import time\n"
        "block = bytearray(64 << 20)\n"
        "while time.process_time() < 0.5: pass\n"
        "print('burnt', flush=True)\n"
        "input()\n"
    )
    spec = make_spec(("sh", "-c", f'python3 -c "{burn}" < /dev/zero || sleep 1; exit 0'))
    local.cluster.start((spec,), tell_nothing)
    wait_until(lambda: b"burnt" in b"".join(local.cluster.logs(spec.key)))
    usage = local.cluster.usage(spec.key)
    assert usage.cpu_seconds >= 0.4
    assert usage.peak_memory_bytes >= 64 << 20
    assert usage.gpu_ratio is None
    local.cluster.stop(spec.key, grace_seconds=0, reason="Cancelled")
    wait_until(lambda: local.phase(spec.key) == "Ended")
    ended = local.cluster.usage(spec.key)
    assert ended.cpu_seconds >= 0.4
    assert ended.peak_memory_bytes >= 64 << 20
    local.cluster.acknowledge(spec.key)
    with pytest.raises(NotFound):
        local.cluster.usage(spec.key)


def test_a_task_that_does_nothing_is_idle_until_it_works(make_home, make_spec, tell_nothing, tmp_path):
    local = make_home()
    script = "until [ -e go ]; do sleep 0.5; done; while :; do :; done"
    spec = make_spec(("sh", "-c", script), working_directory=str(tmp_path))
    local.cluster.start((spec,), tell_nothing)
    wait_until(lambda: local.phase(spec.key) == "Running")
    task = local.task(spec.key)
    assert task.idle_since == 0.0
    wait_until(lambda: local.task(spec.key).idle_since > 0.0)
    assert local.task(spec.key).idle_since >= task.started
    (tmp_path / "go").touch()
    wait_until(lambda: local.task(spec.key).idle_since == 0.0)
