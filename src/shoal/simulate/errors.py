"""What is wrong with the input of a simulation, in one sentence that names the file."""

from __future__ import annotations

from shoal.objects.errors import ShoalError

__all__ = ["BadInput", "Stuck"]


class BadInput(ShoalError):
    """A file or a number that cannot be used."""

    code = "BadInput"
    http_status = 422
    exit_code = 2


class Stuck(ShoalError):
    """Jobs that will never start, on a cluster that has nothing else to do."""

    code = "Stuck"
    http_status = 422
    exit_code = 1
