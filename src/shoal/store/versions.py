"""Versions and cursors as text: opaque to clients, `epoch.revision` to the stores of this package.

A revision counts the changes of one store, in the order in which they became durable. The epoch is
drawn when a store is made, so that a version from before the store was thrown away and made again is
recognised instead of pointing at something else.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from dataclasses import dataclass

from shoal.objects.errors import Expired, Invalid

__all__ = ["Cursor", "new_epoch", "read_cursor", "read_version", "version_text"]


def new_epoch() -> str:
    """Another store, another epoch."""
    return secrets.token_hex(4)


def version_text(epoch: str, revision: int) -> str:
    """The version that stands for a revision of this store."""
    return f"{epoch}.{revision}"


def read_version(text: str, epoch: str) -> int:
    """The revision behind a version.

    Raises:
        Expired: it is of another store, or nothing that a store of this package wrote.
    """
    theirs, _, digits = text.rpartition(".")
    if theirs != epoch or not (digits.isascii() and digits.isdecimal()):
        raise Expired("this version is not one of this store's", hint="list again and compare")
    return int(digits)


@dataclass(frozen=True)
class Cursor:
    """Where a list goes on: after `(namespace, name)`, with the version of its first page."""

    version: str
    namespace: str
    name: str

    def text(self) -> str:
        """As it travels."""
        plain = json.dumps([self.version, self.namespace, self.name], separators=(",", ":"))
        return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")


def read_cursor(text: str) -> Cursor:
    """The cursor in `text`.

    Raises:
        Invalid: it cannot be read.
    """
    try:
        version, namespace, name = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, TypeError):
        raise Invalid("the cursor cannot be read", hint="list from the start") from None
    if not all(isinstance(part, str) for part in (version, namespace, name)):
        raise Invalid("the cursor cannot be read", hint="list from the start")
    return Cursor(version, namespace, name)
