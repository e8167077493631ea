"""Secrets: named values that tasks may use and that the API never shows.

The kind is internal: the routes of `shoal secret` alone write it, and none of them reads a value. What
is stored is sealed (`shoal.server.secrets`); a role of a job names the secrets that its tasks get.
"""

from __future__ import annotations

import re

from shoal.objects.kind import Kind
from shoal.objects.meta import Object, Part, Stamp

__all__ = [
    "DEFAULT_KEY",
    "LARGEST_SECRET_BYTES",
    "SECRET",
    "Secret",
    "SecretSpec",
    "is_key",
    "is_variable",
]

DEFAULT_KEY = "value"
"""The key of a secret that has one value."""
LARGEST_SECRET_BYTES = 256 * 1024
"""Of all values of one secret."""

_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SecretSpec(Part, frozen=True, kw_only=True):
    """The sealed values by their keys."""

    sealed: dict[str, str] = {}
    """Each is `KEY_ID.BASE64`: the encryption key's id, and nonce with ciphertext."""
    updated: Stamp = 0.0
    """When a value was last set."""


class Secret(Object, frozen=True, kw_only=True):
    """Values that tasks of the same namespace may be given."""

    spec: SecretSpec = SecretSpec()
    kind: str = "Secret"


def is_key(text: str) -> bool:
    """Whether a value, or the file that holds it in a task, can have this name."""
    return _KEY.fullmatch(text) is not None


def is_variable(text: str) -> bool:
    """Whether an environment variable that holds a value can have this name."""
    return _VARIABLE.fullmatch(text) is not None


SECRET = Kind(name="Secret", plural="secrets", struct=Secret, internal=True)
