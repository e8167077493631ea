"""After a trainer's death: its copy in memory becomes a checkpoint on disk.

    python -m shoal.elastic.checkpoint.persist FOLDER [PLACE]

For a process that outlives the trainer on its machine when the training does not go on there (the
machine is to be given back, the job was suspended). A successor does not need it: it loads from memory.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from shoal.elastic.checkpoint import durable, layout, slots
from shoal.elastic.checkpoint import manifest as manifests
from shoal.elastic.checkpoint.errors import CheckpointError
from shoal.elastic.checkpoint.manifest import Manifest
from shoal.elastic.checkpoint.memory import committed, place_for

__all__ = ["main", "persist"]

_log = logging.getLogger(__name__)


def persist(
    folder: Path, *, memory: bool | Path = True, publish: durable.Publish | None = None, keep: int = 2
) -> Manifest | None:
    """Write the newest usable copy in memory to disk; None if the disk has it, or there is none.

    The copy stays where it is; `memory.discard` removes it. Arguments are those of `Saver`.

    Raises:
        CheckpointError: as `durable.write`.
    """
    place = place_for(folder, memory)
    copies = [] if place is None else committed(place)
    on_disk = max((each.sequence for each in manifests.list_checkpoints(folder)), default=0)
    for path, head in sorted(copies, key=lambda copy: copy[1].sequence, reverse=True):
        if head.sequence <= on_disk:
            return None
        try:
            copy = slots.read(path)
        except (CheckpointError, OSError, ValueError) as error:
            _log.warning("the copy in memory of step %d is not usable: %s", head.step, error)
            continue
        places = layout.hashed(copy.places, copy.tensors)
        source = durable.Source(head.sequence, head.step, head.epoch, copy.plain, places, copy.tensors)
        return durable.write(folder, source, publish, keep)
    return None


def main(arguments: Sequence[str]) -> int:
    """The command; its exit code is 0 when the disk has what memory had, 2 for wrong arguments."""
    if len(arguments) not in (1, 2):
        sys.stderr.write("python -m shoal.elastic.checkpoint.persist FOLDER [PLACE]\n")
        return 2
    written = persist(Path(arguments[0]), memory=Path(arguments[1]) if len(arguments) > 1 else True)
    sys.stdout.write(f"{written.name}\n" if written else "")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
