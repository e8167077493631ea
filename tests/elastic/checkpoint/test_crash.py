"""A trainer killed with SIGKILL at every durable act and at random moments (`training-N8`).

What is loaded afterwards is always one complete state, at least as new as what was published or said to
be on disk; where the disk kept pace, memory has the last commit that returned. A successor goes on from
it and leaves nothing of the dead one behind.
"""

from __future__ import annotations

import json
import os
import random
import re
import secrets
import signal
import time
from pathlib import Path

import pytest

import shoal.elastic.checkpoint
from shoal.elastic.checkpoint.loader import load
from shoal.elastic.checkpoint.manifest import list_checkpoints, written
from shoal.elastic.checkpoint.saver import Saver
from tests.elastic.checkpoint.states import same, state_of
from tests.elastic.forked import Child, server

pytestmark = [pytest.mark.slow, pytest.mark.process]

SOURCES = Path(shoal.elastic.checkpoint.__file__).parent
POINTS = sorted(
    {
        name
        for path in SOURCES.glob("*.py")
        for name in re.findall(r'faults\.point\("([^"]+)"', path.read_text())
    }
)
VISITS = {"checkpoint.memory.opened": 1, "checkpoint.older.hidden": 1}
"""Elsewhere the third visit is taken, when there are older checkpoints."""


def start(folder: Path, place: Path, fault: str = "") -> Child:
    folder.mkdir(exist_ok=True)
    words = ["-m", "tests.elastic.checkpoint.writer", str(folder), str(place), str(folder / "notes")]
    environment = {**os.environ, "SHOAL_FAULTS": fault, "OMP_NUM_THREADS": "1"}
    return server().start(words, environment, folder.parent / "writer.log")


def promised(folder: Path, what: str) -> int:
    notes = folder / "notes"
    lines = notes.read_text().splitlines() if notes.exists() else []
    return max((int(line.split()[1]) for line in lines if line.startswith(what)), default=0)


def check(folder: Path, place: Path) -> int:
    """Both tiers give a whole state, as new as was promised; the step that memory gives, 0 for none."""
    for manifest in list_checkpoints(folder):
        listed = load(folder, memory=False, published=written(manifest))
        assert listed is not None
        assert listed.step == manifest.step
        assert same(listed.state, state_of(listed.step)), manifest
    disk = load(folder, memory=False)
    assert (0 if disk is None else disk.step) >= promised(folder, "durable")
    if (folder / "published").read_text():
        last = json.loads((folder / "published").read_text().splitlines()[-1])
        taken = load(folder, memory=False, published=last)
        assert taken is not None
        assert taken.step == last["step"]
    newest = load(folder, memory=place)
    if newest is None:
        assert promised(folder, "kept") == 0
        return 0
    assert same(newest.state, state_of(newest.step))
    assert newest.step >= promised(folder, "kept")
    return newest.step


def succeed(folder: Path, place: Path, step: int) -> None:
    """Another trainer goes on: it saves one step and ends, and nothing of the dead one is left."""
    saver = Saver(folder, memory=place)
    saver.save(state_of(step), step)
    assert saver.wait(60.0)
    assert saver.take_error() is None
    assert saver.close()
    assert not place.exists()
    names = {entry.name for entry in folder.iterdir()} - {"notes", "published"}
    assert names == {manifest.name for manifest in list_checkpoints(folder)}
    assert len(names) <= 2
    loaded = load(folder, memory=place)
    assert loaded is not None
    assert same(loaded.state, state_of(step))


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_point(point: str, tmp_path: Path, place: Path) -> None:
    """`training-N8`."""
    folder = tmp_path / "checkpoints"
    process = start(folder, place, f"{point}:kill:{VISITS.get(point, 3)}")
    try:
        assert process.wait(60.0) == -signal.SIGKILL, "the point was not reached"
    finally:
        process.kill()
        process.wait()
    step = check(folder, place)
    if point not in VISITS:
        assert step >= 2
    succeed(folder, place, step + 1)


def test_killed_at_random_moments(tmp_path: Path, place: Path) -> None:
    """`training-N8`: one life after the other in the same folder."""
    lives(tmp_path, place, 3, seed=1)


@pytest.mark.soak
def test_killed_at_many_random_moments(tmp_path: Path, place: Path) -> None:
    """`training-N8`."""
    seed = secrets.randbits(32)
    lives(tmp_path, place, 100, int(os.environ.get("SHOAL_CHECKPOINT_SEED", seed)))


def lives(tmp_path: Path, place: Path, count: int, seed: int) -> None:
    print(f"SHOAL_CHECKPOINT_SEED={seed}")
    chance = random.Random(seed)
    folder = tmp_path / "checkpoints"
    reached = 0
    for life in range(count):
        process = start(folder, place)
        try:
            deadline = time.monotonic() + 60.0
            while promised(folder, "kept") <= reached and time.monotonic() < deadline:
                assert process.poll() is None, "the writer failed"
                time.sleep(0.002)
            time.sleep(chance.uniform(0.0, 0.4))  # the moment is what is drawn
        finally:
            process.kill()
            process.wait()
        step = check(folder, place)
        assert step > reached, life
        reached = step
    succeed(folder, place, reached + 1)
