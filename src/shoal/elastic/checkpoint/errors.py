"""What goes wrong with a checkpoint, each in one sentence, with a code for each."""

from __future__ import annotations

from typing import Literal

from shoal.elastic.errors import ElasticError

__all__ = ["CheckpointError", "Code"]

Code = Literal["Unsupported", "NoSpace", "WriteFailed", "Refused", "Unpublished", "Damaged"]
"""
- `Unsupported`: the state holds something that is neither a tensor nor plain data
- `NoSpace`: the disk is full
- `WriteFailed`: the disk, or the folder, does not take it
- `Refused`: the coordinator knows a newer writer; this one's files are removed
- `Unpublished`: it is not known whether the coordinator took it; the files stay aside
- `Damaged`: what is on disk is not what was written
"""


class CheckpointError(ElasticError):
    """A state could not be saved, or no saved state can be trusted; `code` says which.

    A failure in the background is handed out as a value and ends nothing; `load` raises it.
    """

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code: Code = code
