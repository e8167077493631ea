"""Which state is taken, what happens to damaged ones, and that nothing begins anew in silence."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from shoal.elastic.checkpoint import memory
from shoal.elastic.checkpoint.header import COMMITTED, Header, pack
from shoal.elastic.checkpoint.loader import load
from shoal.elastic.checkpoint.manifest import list_checkpoints, parse, written
from shoal.elastic.checkpoint.saver import Saver
from shoal.elastic.errors import CheckpointError
from tests.elastic.checkpoint.states import same, state_of

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the checkpoints of steps 1 and 2."""
    saver = Saver(tmp_path / "checkpoints", memory=False)
    for step in (1, 2):
        saver.save(state_of(step), step, epoch=3)
        assert saver.wait(60.0)
    assert saver.close()
    return tmp_path / "checkpoints"


def newest(folder: Path) -> Path:
    return folder / list_checkpoints(folder)[0].name


def loaded_step(folder: Path, **options: Any) -> int:
    loaded = load(folder, **{"memory": False, **options})
    assert loaded is not None
    assert same(loaded.state, state_of(loaded.step))
    return loaded.step


def test_nothing_there(tmp_path: Path) -> None:
    assert load(tmp_path) is None
    assert load(tmp_path / "absent") is None
    assert list_checkpoints(tmp_path / "absent") == ()
    (tmp_path / ".pending-00000001-step-1-00112233").mkdir()
    assert load(tmp_path) is None


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata", "state.json", "manifest.json"])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "empty"])
def test_a_damaged_one_is_passed_over(
    name: str, harm: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = newest(folder) / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if harm == "flip":
        path.write_bytes(data)
    elif harm == "cut":
        os.truncate(path, len(data) // 2)
    elif harm == "empty":
        os.truncate(path, 0)
    else:
        path.unlink()
    damaged = newest(folder).name if name == "manifest.json" else path.parent.name
    assert loaded_step(folder) == 1
    assert len([record for record in caplog.records if path.parent.name in record.message]) >= 1, damaged
    saver = Saver(folder, memory=False)
    for step in (3, 4):
        saver.save(state_of(step), step)
        assert saver.wait(60.0)
    assert saver.close()
    assert sorted(entry.name for entry in folder.iterdir()) == sorted(
        manifest.name for manifest in list_checkpoints(folder)
    ), "the damaged one is removed when its time has come"


def test_every_flipped_byte_of_the_tensors_matters_or_is_padding(folder: Path) -> None:
    path = newest(folder) / "__0_0.distcp"
    whole = path.read_bytes()
    seen = set[int]()
    for at in range(11, len(whole), len(whole) // 40):
        data = bytearray(whole)
        data[at] ^= 0x10
        path.write_bytes(data)
        seen.add(loaded_step(folder))  # whichever it is, it is whole
    assert 1 in seen


def test_all_of_them_damaged_is_an_error(folder: Path) -> None:
    for manifest in list_checkpoints(folder):
        (folder / manifest.name / "state.json").write_text("{}")
    with pytest.raises(CheckpointError, match="begin anew") as caught:
        load(folder, memory=False)
    assert caught.value.code == "Damaged"


def test_a_later_version_is_not_guessed_at(folder: Path) -> None:
    path = newest(folder) / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))
    assert loaded_step(folder) == 1


def test_the_published_one_counts(folder: Path) -> None:
    second, first = (written(manifest) for manifest in list_checkpoints(folder))
    assert loaded_step(folder, published=second) == 2
    assert loaded_step(folder, published=first) == 1


def test_the_published_one_is_gone(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    published = written(list_checkpoints(folder)[0])
    newest(folder).rename(folder.parent / "elsewhere")
    assert loaded_step(folder, published=published) == 1
    assert "was published and is not in" in caplog.text
    newest(folder).rename(folder.parent / "also")
    with pytest.raises(CheckpointError):
        load(folder, memory=False, published=published)


def test_a_copy_in_memory_of_an_older_epoch_does_not_count(folder: Path, place: Path) -> None:
    published = written(list_checkpoints(folder)[0])
    for epoch, expected in ((2, 2), (3, 9)):
        saver = Saver(folder.parent / f"other{epoch}", memory=place)
        for _ in range(3):  # its sequence is past that of the published one
            saver.save(state_of(9), 9, epoch=epoch)
        assert loaded_step(folder, memory=place, published=published) == expected
        assert saver.close()


@pytest.mark.parametrize(
    "change",
    [{"name": "../x"}, {"files": {"../x": {"bytes": 1, "sha256": ""}}}, {"step": "x"}, {"files": []}],
)
def test_manifests_that_lie(change: dict[str, Any], folder: Path) -> None:
    document = written(list_checkpoints(folder)[0])
    with pytest.raises(ValueError):
        parse({**document, **change})
    with pytest.raises(ValueError):
        parse([document])


def test_a_slot_that_is_no_slot_is_passed_over(folder: Path, place: Path) -> None:
    region = memory.Region(place)
    (region.path / "slot-0").write_bytes(pack(Header(COMMITTED, 99, 99)))  # torn off after its header
    (region.path / "slot-1").write_bytes(b"x" * 9000)
    assert loaded_step(folder, memory=place) == 2
    region.close()
