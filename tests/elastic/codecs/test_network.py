"""Real gloo groups of two processes: which codec pays on which network, and torch's hook beside ours."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.elastic.codecs.networks import cable

pytestmark = [pytest.mark.slow, pytest.mark.process]

_MAIN = Path(__file__).with_name("rank_main.py")
_SECONDS = 100


def run(
    task: str,
    address: str,
    port: int,
    prefixes: Sequence[Sequence[str]],
    **environment: str,
) -> list[dict[str, Any]]:
    """One process for each prefix; what each printed. None outlives the call."""
    ranks: list[subprocess.Popen[str]] = []
    with contextlib.ExitStack() as undo:
        for rank, prefix in enumerate(prefixes):
            process = subprocess.Popen(
                [*prefix, sys.executable, "-W", "ignore::FutureWarning", str(_MAIN), task],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={
                    **os.environ,
                    "RANK": str(rank),
                    "WORLD_SIZE": str(len(prefixes)),
                    "MASTER_ADDR": address,
                    "MASTER_PORT": str(port),
                    **environment,
                },
            )
            undo.callback(process.wait, 10)
            undo.callback(process.kill)
            ranks.append(process)
        ended = [process.communicate(timeout=_SECONDS) for process in ranks]
    for process, (_, errors) in zip(ranks, ended, strict=True):
        assert process.returncode == 0, errors[-3000:]
    return [json.loads(output.strip().splitlines()[-1]) for output, _ in ended]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_at_one_gigabit_a_codec_is_chosen() -> None:
    with cable("1gbit") as names:
        found = run(
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
    found = run("tune", "127.0.0.1", free_port(), [(), ()], GLOO_SOCKET_IFNAME="lo")
    print(found[0])
    assert found[0] == found[1]
    assert found[0]["codec"] == "none"


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_powersgd_decodes_what_torchs_hook_decodes(rank: int) -> None:
    found = run("hook", "127.0.0.1", free_port(), [(), ()], POWERSGD_RANK=str(rank))
    assert found[0]["worst"] < 1e-4
    assert found[0]["digest"] == found[1]["digest"]
