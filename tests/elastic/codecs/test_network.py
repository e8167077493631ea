"""Real gloo groups of two processes: which codec pays on which network, and torch's hook beside ours."""

from __future__ import annotations

import pytest

from tests.elastic.codecs.networks import cable
from tests.elastic.codecs.ranks import free_port, run

pytestmark = [pytest.mark.slow, pytest.mark.process]

_MAIN = "tests.elastic.codecs.rank_main"


def test_at_one_gigabit_a_codec_is_chosen() -> None:
    with cable("1gbit") as names:
        found = run(
            _MAIN,
            "tune",
            "10.77.0.1",
            29500,
            [("ip", "netns", "exec", name) for name in names],
            GLOO_SOCKET_IFNAME="wire",
        )
    print(found[0])
    assert found[0] == found[1]
    assert found[0]["codec"] != "none"
    assert found[0]["speedup"][0] > 1.5


def test_on_loopback_none_is_chosen() -> None:
    found = run(_MAIN, "tune", "127.0.0.1", free_port(), [(), ()], GLOO_SOCKET_IFNAME="lo")
    print(found[0])
    assert found[0] == found[1]
    assert found[0]["codec"] == "none"


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_powersgd_decodes_what_torchs_hook_decodes(rank: int) -> None:
    found = run(_MAIN, "hook", "127.0.0.1", free_port(), [(), ()], POWERSGD_RANK=str(rank))
    assert found[0]["worst"] < 1e-4
    assert found[0]["digest"] == found[1]["digest"]
