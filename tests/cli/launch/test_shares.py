from __future__ import annotations

import pytest

from shoal.cli.launch.job import cpu_share, local_cores_millis


@pytest.mark.parametrize(
    ("nodes", "at_once", "share"),
    [
        ([2000], 1, 1000),
        ([2000], 2, 950),
        ([2000], 4, 475),
        ([1000], 1, 900),
        ([4000, 4000], 8, 975),
        ([4000] * 4, 16, 975),
        ([1000, 1000], 3, 450),  # two tasks on one of the nodes
        ([8000, 1000], 8, 987),  # not all of them on equal nodes
        ([], 3, 1),
        ([50], 1, 1),
        ([2000], 5000, 1),
    ],
)
def test_all_tasks_fit_at_once(nodes: list[int], at_once: int, share: int) -> None:
    assert cpu_share(nodes, at_once) == share
    if share > 1:
        assert sum((n - 100) // share for n in nodes) >= at_once


def test_this_machine_has_a_core() -> None:
    assert local_cores_millis() >= 1000
