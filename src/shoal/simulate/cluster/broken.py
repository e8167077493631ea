"""How it is told that a plan breaks a rule."""

from __future__ import annotations

from shoal.objects.errors import ShoalError

__all__ = ["Broken"]


class Broken(ShoalError):
    """A plan that must not be carried out."""

    code = "Broken"
    exit_code = 1
