"""What goes wrong in an elastic job, each in one sentence that says what to do.

`ElasticError` is the user's: it ends the script. `CheckpointError` has a code for each cause. The others
never leave the library.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["CheckpointError", "Code", "ElasticError", "Fenced", "GroupFailed", "Stopped"]


class ElasticError(RuntimeError):
    """The script, its data or its surroundings make training impossible."""


class Stopped(ElasticError):
    """The coordinator has ended the job; the message is its reason."""


class GroupFailed(Exception):
    """An operation of the current group failed, or was interrupted: a new view will come."""


class Fenced(Exception):
    """This incarnation is no member any more: its state is to be discarded."""


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
