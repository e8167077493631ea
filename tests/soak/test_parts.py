"""The soak's own parts: what it would say if something were wrong."""

from __future__ import annotations

import mmap
import os
import socket
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest

from tests.soak.health import MOST_MIB, MOST_MORE, Held, Life, look
from tests.soak.leaks import Marked
from tests.soak.plan import KINDS, draw
from tests.soak.tape import Tape


def test_a_seed_draws_the_same_blows_again() -> None:
    blows = list(islice(draw(7, 5.0, 4), 400))
    assert blows == list(islice(draw(7, 5.0, 4), 400))
    assert blows != list(islice(draw(8, 5.0, 4), 400))
    assert {blow.kind for blow in blows} == set(KINDS)
    assert 4.5 < sum(blow.after for blow in blows) / len(blows) < 5.5
    assert {blow.size for blow in blows} == {1, 2, 3, 4}


def step(number: int, life: int = 1, **fields: object) -> dict:
    return {
        "at": float(number),
        "step": number,
        "life": life,
        "committed": number - 1,
        "size": 1,
        **fields,
    }


def test_a_step_left_out_or_done_twice_is_seen() -> None:
    tape = Tape()
    tape.hear("a", [step(1), step(2), step(4)])
    assert (tape.jumps, tape.problems, tape.missing(4)) == (1, [], [3])
    tape.hear("b", [step(3, 2), step(4, 2)])
    assert tape.missing(4) == []
    tape.hear("a", [step(4)])
    tape.hear("b", [step(9, 2)])
    assert len(tape.problems) == 2
    tape.hear("c", [step(40, 3), step(41, 3)])
    assert len(tape.problems) == 2, "a new life begins where the others are"


def test_another_state_after_the_same_step_is_seen() -> None:
    tape = Tape()
    tape.hear("a", [{"at": 1.0, "of": 50, "digest": "x"}])
    tape.hear("b", [{"at": 1.0, "of": 50, "digest": "x"}])
    assert (tape.compared, tape.problems) == (1, [])
    tape.hear("c", [{"at": 1.0, "of": 50, "digest": "y"}])
    assert len(tape.problems) == 1


def life(mib: float, more: float, noise: float = 0.0) -> Life:
    """A thousand seconds in which memory and descriptors grow by so much."""
    shares = [n / 200 for n in range(200)]
    held = [
        Held(1000.0 * s, 100.0 + mib * s + noise * (n % 3), round(20 + more * s), 5, 2)
        for n, s in enumerate(shares)
    ]
    return Life("somebody", 1, held)


@pytest.mark.parametrize("noise", [0.0, 20.0])
def test_what_grows_is_seen_through_noise(noise: float) -> None:
    assert life(0.0, 0.0, noise).problems() == []
    assert life(0.5 * MOST_MIB, 2.0, noise).problems() == []
    grown = life(20 * MOST_MIB, 3.0 * MOST_MORE, noise).problems()
    assert len(grown) == 2, grown


def test_a_process_is_looked_at() -> None:
    before = look(os.getpid(), 0.0)
    assert before is not None
    # not from a heap, which may have as much to spare
    with socket.create_server(("127.0.0.1", 0)), mmap.mmap(-1, 64 << 20) as block:
        block.write(b"x" * len(block))
        after = look(os.getpid(), 1.0)
    assert after is not None
    assert after.descriptors == before.descriptors + 1
    assert after.listeners == before.listeners + 1
    assert after.own_mib > before.own_mib + 16.0
    assert look(2**22 + 1, 0.0) is None


@pytest.mark.process
@pytest.mark.slow
def test_what_is_left_is_found(tmp_path: Path) -> None:
    marked = Marked(tmp_path)
    environment = {**os.environ, **marked.environment}
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment)
    try:
        deadline = time.monotonic() + 10.0
        while sleeper.pid not in marked.processes() and time.monotonic() < deadline:
            time.sleep(0.01)
        (tmp_path / "temporary" / "litter").touch()
        (tmp_path / "temporary" / "torchinductor_me").mkdir()
        assert [line.split()[0] for line in marked.left(set())] == ["process", "temporary"]
    finally:
        sleeper.communicate(b"\n", timeout=10.0)
    assert [line.split()[0] for line in marked.left(set())] == ["temporary"]
