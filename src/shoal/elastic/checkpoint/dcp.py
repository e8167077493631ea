"""Tensors in files in the format of torch.distributed.checkpoint, written by one process.

torch can read these files without Shoal. The format's index (`.metadata`) is a pickle,
which could run anything when it is loaded; here only the handful of classes are let in that an index
of tensors consists of. The tensors themselves are loaded with `weights_only`.
"""

# torch leaves parts of the planners' signatures without types
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata

from shoal.elastic.errors import CheckpointError

__all__ = ["INDEX", "fill", "save"]

INDEX = ".metadata"

_METADATA = "torch.distributed.checkpoint.metadata"
_ALLOWED = frozenset(
    {
        (_METADATA, "Metadata"),
        (_METADATA, "TensorStorageMetadata"),
        (_METADATA, "TensorProperties"),
        (_METADATA, "_MEM_FORMAT_ENCODING"),
        (_METADATA, "ChunkStorageMetadata"),
        (_METADATA, "MetadataIndex"),
        (_METADATA, "StorageMeta"),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        ("torch.serialization", "_get_layout"),
        ("torch", "Size"),
    }
)


def save(tensors: Mapping[str, torch.Tensor], folder: Path) -> None:
    """Write tensors (on the CPU) and their index into an empty folder, forced to the disk.

    Raises:
        OSError: the disk is full, or does not take it.
    """
    writer = _Writer(folder, single_file_per_rank=True, thread_count=1, sync_files=True)
    planner = DefaultSavePlanner()
    # what dcp.save does for one process; called itself, it warns each time that there is only one
    planner.set_up_planner(dict(tensors), writer.storage_meta(), is_coordinator=True)
    writer.set_up_storage_writer(is_coordinator=True)
    plan = writer.prepare_local_plan(planner.create_local_plan())
    plans, metadata = planner.create_global_plan([plan])
    plan = planner.finish_plan(writer.prepare_global_plan(plans)[0])
    results = writer.write_data(plan, planner).wait()
    writer.finish(metadata, [results])


def fill(tensors: Mapping[str, torch.Tensor], folder: Path) -> None:
    """Read into tensors (on the CPU, contiguous) what was saved under their names.

    Raises:
        CheckpointError: `Damaged` when the files are not those of `save`, or of other tensors.
        OSError: they cannot be read.
    """
    reader = _Reader(folder)
    planner = DefaultLoadPlanner()
    try:
        metadata = reader.read_metadata()
        planner.set_up_planner(dict(tensors), metadata, is_coordinator=True)
        reader.set_up_storage_reader(metadata, is_coordinator=True)
        plan = reader.prepare_local_plan(planner.create_local_plan())
        plans = reader.prepare_global_plan(planner.create_global_plan([plan]))
        reader.read_data(planner.finish_plan(plans[0]), planner).wait()
    except (CheckpointError, OSError):
        raise
    except Exception as error:  # what torch raises on damaged bytes is not enumerated
        raise CheckpointError("Damaged", f"the tensors cannot be read ({error})") from error


class _Writer(FileSystemWriter):
    """The same without this machine's paths in the index."""

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta()


class _Reader(FileSystemReader):
    """The same, with an index that can do nothing."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        data = (self._folder / INDEX).read_bytes()
        metadata = cast("Metadata", _Unpickler(io.BytesIO(data)).load())
        self._check(metadata)
        metadata.storage_meta = StorageMeta(load_id=self.load_id)
        return metadata

    def _check(self, metadata: Metadata) -> None:
        here = {entry.name for entry in self._folder.iterdir()}
        for info in metadata.storage_data.values():
            if info.relative_path not in here or info.transform_descriptors:
                raise CheckpointError("Damaged", f"its index points to {info.relative_path}")
        for name, stored in metadata.state_dict_metadata.items():
            if not isinstance(stored, TensorStorageMetadata):  # else the planner would unpickle it
                raise CheckpointError("Damaged", f"{name} is not a tensor in its index")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = getattr(torch, name, None) if module == "torch" and "." not in name else None
        if isinstance(found, torch.dtype) or (module, name) in _ALLOWED:
            return super().find_class(module, name)
        raise CheckpointError("Damaged", f"its index asks for {module}.{name}, which no index needs")
