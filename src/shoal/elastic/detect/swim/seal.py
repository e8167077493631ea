"""Authentication by the job's key: what is not sealed with a key that is accepted was never said.

A key is changed without a gap in three rounds over all members: accept both, seal with the new one,
accept the new one alone. What is sealed can be replayed: every message of the protocol is idempotent
and carries an incarnation, so that an old one says nothing new.
"""

from __future__ import annotations

import hashlib
import hmac

__all__ = ["SEAL_BYTES", "Keys"]

SEAL_BYTES = 16


class Keys:
    """The key that seals, and others that are accepted too. Immutable."""

    def __init__(self, key: str, *also: str) -> None:
        self._keys = [hashlib.sha256(b"shoal swim " + each.encode()).digest() for each in (key, *also)]

    def seal(self, payload: bytes) -> bytes:
        """The payload with its seal before it."""
        return self._sealed(self._keys[0], payload) + payload

    def open(self, data: bytes) -> bytes | None:
        """The payload; None when no accepted key has sealed it."""
        seal, payload = data[:SEAL_BYTES], data[SEAL_BYTES:]
        for key in self._keys:
            if hmac.compare_digest(seal, self._sealed(key, payload)):
                return payload
        return None

    @staticmethod
    def _sealed(key: bytes, payload: bytes) -> bytes:
        return hmac.digest(key, payload, "sha256")[:SEAL_BYTES]
