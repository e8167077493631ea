"""No codec: the bucket itself is summed."""

from __future__ import annotations

from typing import Any

from shoal.elastic.codecs.base import Bucket, Rounds

__all__ = ["Plain"]


class Plain:
    """See `Codec`. It has no state and copies nothing."""

    name = "none"

    def exchange(self, bucket: Bucket) -> Rounds:
        """One round: the bucket."""
        yield bucket.flat

    def commit(self) -> None:
        """Nothing is owed."""

    def rollback(self) -> None:
        """Nothing is owed."""

    def forget(self, number: int) -> None:
        """Nothing is owed."""

    def view_changed(self, epoch: int) -> None:
        """Nothing is shared."""

    def state_dict(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to load."""
