"""A trainer that does nothing but save: `python -m tests.elastic.checkpoint.writer FOLDER PLACE NOTES`.

It begins after the newest state that it finds and stages and commits step after step. A line in NOTES is
a promise: `kept N` that memory holds step N or a later one, `durable N` that the disk does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.elastic.checkpoint.loader import load
from shoal.elastic.checkpoint.saver import Saver
from tests.elastic.checkpoint.states import state_of

STEPS = 100_000


def main(folder: Path, place: Path, notes: Path) -> None:
    """Until it is killed."""
    loaded = load(folder, memory=place)
    first = 1 if loaded is None else loaded.step + 1
    durable = None
    with (
        notes.open("a", buffering=1) as said,
        (folder / "published").open("a", buffering=1) as published,
    ):

        def publish(manifest: Mapping[str, Any]) -> bool:
            published.write(f"{json.dumps(manifest)}\n")
            return True

        saver = Saver(folder, memory=place, publish=publish)
        for step in range(first, first + STEPS):
            saver.stage(state_of(step), step)
            saver.commit(step)
            if step < first + 4:  # later the disk lags behind, and memory keeps what it is still writing
                said.write(f"kept {step}\n")
                saver.wait(60.0)
            if (error := saver.take_error()) is not None:
                raise error
            if saver.durable_step != durable:
                durable = saver.durable_step
                said.write(f"durable {durable}\nkept {durable}\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
