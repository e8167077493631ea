"""What goes wrong in an elastic job, each in one sentence that says what to do.

`ElasticError` is the user's: it ends the script. The others never leave the library.
"""

from __future__ import annotations

__all__ = ["ElasticError", "Fenced", "GroupFailed", "Stopped"]


class ElasticError(RuntimeError):
    """The script, its data or its surroundings make training impossible."""


class Stopped(ElasticError):
    """The coordinator has ended the job; the message is its reason."""


class GroupFailed(Exception):
    """An operation of the current group failed, or was interrupted: a new view will come."""


class Fenced(Exception):
    """This incarnation is no member any more: its state is to be discarded."""
