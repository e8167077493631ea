"""One checkpoint on disk: written aside, published, made visible by one rename, old ones removed.

Whenever the process dies, a complete checkpoint that was visible before is visible still, and what is
not complete is not listed. See `docs/design/elastic-checkpoints.md` for the order and why.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from shoal import faults
from shoal.elastic.checkpoint import dcp, layout
from shoal.elastic.checkpoint import manifest as manifests
from shoal.elastic.checkpoint.manifest import File, Manifest
from shoal.elastic.checkpoint.tree import Json
from shoal.elastic.errors import CheckpointError

__all__ = ["STATE", "Publish", "Source", "adopt", "next_sequence", "write"]

STATE = "state.json"
"""The plain part of the state, and the hashes of the tensors."""

Publish = Callable[[Mapping[str, Any]], bool]
"""Publish a manifest with the coordinator. True: it is the job's newest now. False: there is a newer
writer. An exception: not known. Called in the writing thread; may take its time."""


@dataclass(frozen=True)
class Source:
    """What is to be written: tensors on the CPU that do not change until then; `places` have hashes."""

    sequence: int
    step: int
    epoch: int
    plain: Json
    places: Sequence[layout.Place]
    tensors: Mapping[str, torch.Tensor]


def write(folder: Path, source: Source, publish: Publish | None, keep: int) -> Manifest:
    """Make a checkpoint of `source` in `folder`, then remove all but the newest `keep`.

    Raises:
        CheckpointError: `NoSpace`, `WriteFailed`, `Refused`: nothing of it is left; `Unpublished`: it is
            left aside and `adopt` makes it visible if it was published after all.
    """
    name = f"{source.sequence:08d}-step-{source.step}-{secrets.token_hex(4)}"
    pending = folder / f"{manifests.PENDING}{name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _clean(folder)
        pending.mkdir()
        manifest = _write_files(pending, name, source)
    except (OSError, RuntimeError) as error:  # torch wraps what its file said
        shutil.rmtree(pending, ignore_errors=True)  # what the disk refuses to remove, _clean tries again
        raise _explained(error, source.step, folder) from error
    if publish is not None:
        _ask(publish, manifest, pending)
        faults.point("checkpoint.manifest.published")
    try:
        pending.rename(folder / name)
        _sync(folder)
        faults.point("checkpoint.folder.visible")
        _prune(folder, manifest, keep)
    except OSError as error:
        raise _explained(error, source.step, folder) from error
    return manifest


def adopt(folder: Path, published: Manifest) -> bool:
    """Make visible what was published by a writer that died before its last step; True if it is there.

    Raises:
        OSError: the folder cannot be written.
    """
    if (folder / published.name).is_dir():
        return True
    pending = folder / f"{manifests.PENDING}{published.name}"
    if not pending.is_dir():
        return False
    pending.rename(folder / published.name)
    _sync(folder)
    return True


def next_sequence(folder: Path, others: Sequence[int] = ()) -> int:
    """One more than any that a folder's checkpoints, also pending ones, or `others` have."""
    entries = folder.iterdir() if folder.is_dir() else ()
    names = [entry.name.removeprefix(manifests.PENDING) for entry in entries]
    taken = [manifests.sequence_of(name) for name in names if manifests.visible(name)]
    return max([*taken, *others], default=0) + 1


def _write_files(pending: Path, name: str, source: Source) -> Manifest:
    dcp.save(source.tensors, pending)
    faults.point("checkpoint.data.written")
    state = {"plain": source.plain, "tensors": layout.written(source.places)}
    _write(pending / STATE, json.dumps(state, separators=(",", ":")))
    faults.point("checkpoint.state.written")
    files: dict[str, File] = {}
    for path in sorted(pending.iterdir()):
        # each tensor has its own hash in STATE, taken from memory: that of the file would say less
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.name in (STATE, dcp.INDEX) else ""
        files[path.name] = File(path.stat().st_size, digest)
    manifest = Manifest(name, source.sequence, source.step, source.epoch, files)
    _write(pending / manifests.FILE, json.dumps(manifests.written(manifest), indent=1))
    _sync(pending)
    faults.point("checkpoint.manifest.written")
    return manifest


def _ask(publish: Publish, manifest: Manifest, pending: Path) -> None:
    try:
        taken = publish(manifests.written(manifest))
    except Exception as error:  # whatever it is, the answer is not known
        raise CheckpointError(
            "Unpublished", f"the coordinator did not say whether it took step {manifest.step} ({error})"
        ) from error
    if not taken:
        shutil.rmtree(pending)
        raise CheckpointError(
            "Refused",
            f"step {manifest.step} was not published: another process writes the checkpoints now",
        )


def _clean(folder: Path) -> None:
    """Remove what dead or fenced writers left; the newest complete one aside may have been published."""
    complete: list[tuple[int, Path]] = []
    useless = list(folder.glob(f"{manifests.REMOVED}*"))
    for entry in folder.glob(f"{manifests.PENDING}*"):
        try:
            complete.append((manifests.read(entry).sequence, entry))
        except (OSError, ValueError):
            useless.append(entry)
    useless += [entry for _, entry in sorted(complete)[:-1]]
    for entry in useless:
        shutil.rmtree(entry, ignore_errors=True)  # another writer may be at the same
    faults.point("checkpoint.leftovers.removed")


def _prune(folder: Path, newest: Manifest, keep: int) -> None:
    older = [each for each in manifests.list_checkpoints(folder) if each.sequence < newest.sequence]
    kept = [newest, *older][:keep]
    for entry in [*folder.iterdir()] if len(kept) == keep else []:
        # by its name, so that a damaged one, which is not listed, goes too when its time has come
        if manifests.visible(entry.name) and manifests.sequence_of(entry.name) < kept[-1].sequence:
            gone = folder / f"{manifests.REMOVED}{entry.name}"
            entry.rename(gone)
            faults.point("checkpoint.older.hidden")
            shutil.rmtree(gone)
    for entry in folder.glob(f"{manifests.PENDING}*"):
        name = entry.name.removeprefix(manifests.PENDING)
        if manifests.visible(name) and manifests.sequence_of(name) < newest.sequence:
            shutil.rmtree(entry, ignore_errors=True)  # another writer may be at the same
    faults.point("checkpoint.older.removed")


def _write(path: Path, text: str) -> None:
    with path.open("xb") as file:
        file.write(text.encode("utf-8", "surrogatepass"))
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _explained(error: Exception, step: int, folder: Path) -> CheckpointError:
    if _code(error) in (errno.ENOSPC, errno.EDQUOT):
        return CheckpointError(
            "NoSpace",
            f"no room for the checkpoint of step {step} in {folder}: the one before stays; free some",
        )
    return CheckpointError("WriteFailed", f"the checkpoint of step {step} cannot be written: {error}")


def _code(error: BaseException | None) -> int | None:
    while error is not None:
        if isinstance(error, OSError):
            return error.errno
        error = error.__cause__ or error.__context__
    return None
