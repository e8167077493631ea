"""DiLoCo between two real processes over gloo (`training-A12`)."""

from __future__ import annotations

import pytest

from tests.elastic.codecs.ranks import free_port, run

pytestmark = [pytest.mark.slow, pytest.mark.process]


def test_two_workers_learn_what_neither_sees_alone() -> None:
    found = run(
        "tests.elastic.optim.rank_local",
        "",
        "127.0.0.1",
        free_port(),
        [(), ()],
        GLOO_SOCKET_IFNAME="lo",
    )
    assert found[0]["digest"] == found[1]["digest"]
    assert found[0]["agreements"] == 60
    for each in found:
        assert each["last"] < 0.2 * each["first"]
