"""The files are torch's own, and reading them runs nothing that they contain."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter

from shoal.elastic.checkpoint import dcp
from shoal.elastic.errors import CheckpointError

TENSORS = {"model.w": torch.arange(6.0).view(2, 3), "b": torch.tensor(True), "e": torch.empty(0, 4)}


def empty() -> dict[str, torch.Tensor]:
    return {name: torch.zeros_like(tensor) for name, tensor in TENSORS.items()}


class Harm:
    """Makes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.target,)


def test_round_trip(tmp_path: Path) -> None:
    dcp.save(TENSORS, tmp_path)
    found = empty()
    dcp.fill(found, tmp_path)
    assert all(torch.equal(found[name], tensor) for name, tensor in TENSORS.items())


def test_no_tensors_at_all(tmp_path: Path) -> None:
    dcp.save({}, tmp_path)
    dcp.fill({}, tmp_path)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_torch_alone_reads_it(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as stock  # its load warns that there is one process

    dcp.save(TENSORS, tmp_path)
    found = empty()
    stock.load(found, storage_reader=FileSystemReader(tmp_path), no_dist=True)
    assert torch.equal(found["model.w"], TENSORS["model.w"])


def test_the_index_says_nothing_of_this_machine(tmp_path: Path) -> None:
    dcp.save(TENSORS, tmp_path)
    assert str(tmp_path).encode() not in (tmp_path / dcp.INDEX).read_bytes()
    assert b"pathlib" not in (tmp_path / dcp.INDEX).read_bytes()


def test_code_in_the_index_is_not_run(tmp_path: Path) -> None:
    dcp.save(TENSORS, tmp_path)
    target = tmp_path / "harmed"
    harm = pickle.dumps(Harm(target))
    pickle.loads(harm)
    assert target.exists()  # the stock reader would have done this
    target.unlink()
    (tmp_path / dcp.INDEX).write_bytes(harm)
    with pytest.raises(CheckpointError, match="which no index needs"):
        dcp.fill(empty(), tmp_path)
    assert not target.exists()


@pytest.mark.parametrize("name", ["torch.hub.load", "torch.load", "os.system", "builtins.eval"])
def test_functions_are_not_let_in(name: str, tmp_path: Path) -> None:
    dcp.save(TENSORS, tmp_path)
    module, _, function = name.rpartition(".")
    (tmp_path / dcp.INDEX).write_bytes(f"c{module}\n{function}\n(S'x'\ntR.".encode())
    with pytest.raises(CheckpointError) as caught:
        dcp.fill(empty(), tmp_path)
    assert caught.value.code == "Damaged"


def rewritten(folder: Path, change: str) -> None:
    metadata = FileSystemReader(folder).read_metadata()
    for info in metadata.storage_data.values():
        info.relative_path = change
    (folder / dcp.INDEX).write_bytes(pickle.dumps(metadata))


def test_an_index_that_points_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    dcp.save(TENSORS, folder)
    (tmp_path / "secret").write_bytes((folder / "__0_0.distcp").read_bytes())
    rewritten(folder, "../secret")
    with pytest.raises(CheckpointError, match=r"points to \.\./secret"):
        dcp.fill(empty(), folder)


def test_pickled_values_are_refused(tmp_path: Path) -> None:
    """What torch would load without `weights_only` is not loaded at all."""
    writer = FileSystemWriter(tmp_path, single_file_per_rank=True)
    planner = torch.distributed.checkpoint.DefaultSavePlanner()
    planner.set_up_planner({"b": {1, 2}}, None, is_coordinator=True)
    writer.set_up_storage_writer(True)
    plans, metadata = planner.create_global_plan([planner.create_local_plan()])
    plans = writer.prepare_global_plan(plans)
    results = writer.write_data(planner.finish_plan(plans[0]), planner).wait()
    writer.finish(metadata, [results])
    with pytest.raises(CheckpointError):
        dcp.fill({"b": torch.zeros(1)}, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("file", [dcp.INDEX, "__0_0.distcp"])
def test_damage_is_damage(file: str, tmp_path: Path) -> None:
    """A cut file is damaged wherever it is cut, and never gives other values."""
    dcp.save(TENSORS, tmp_path)
    whole = (tmp_path / file).read_bytes()
    for cut in range(0, len(whole), 97):
        (tmp_path / file).write_bytes(whole[:cut])
        found = empty()
        try:
            dcp.fill(found, tmp_path)
        except CheckpointError as error:
            assert error.code == "Damaged"
        else:  # only padding was cut off
            assert all(torch.equal(found[name], tensor) for name, tensor in TENSORS.items()), cut
    (tmp_path / file).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError):
        dcp.fill(empty(), tmp_path)


def test_other_tensors(tmp_path: Path) -> None:
    dcp.save(TENSORS, tmp_path)
    with pytest.raises(CheckpointError):
        dcp.fill({"absent": torch.zeros(1)}, tmp_path)
    with pytest.raises(CheckpointError):
        dcp.fill({"model.w": torch.zeros(3, 3)}, tmp_path)
