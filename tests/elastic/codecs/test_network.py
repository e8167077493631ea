"""Real gloo groups of two processes: torch's PowerSGD hook beside ours."""

from __future__ import annotations

import pytest

from tests.elastic.codecs.ranks import free_port, run
from tests.elastic.variants import soak

pytestmark = [pytest.mark.slow, pytest.mark.process]

_MAIN = "tests.elastic.codecs.rank_main"


@pytest.mark.parametrize("rank", [soak(1), 2, soak(4)])
def test_powersgd_decodes_what_torchs_hook_decodes(rank: int) -> None:
    found = run(_MAIN, "hook", "127.0.0.1", free_port(), [(), ()], POWERSGD_RANK=str(rank))
    assert found[0]["worst"] < 1e-4
    assert found[0]["digest"] == found[1]["digest"]
