"""What an object cache must remember while a write, a read or a list is under way."""

from __future__ import annotations

from shoal.control.work import Key
from shoal.objects.meta import Object

__all__ = ["Flight", "Relist", "compare"]


class Flight:
    """A write or read under way: which versions of its key have been applied since it began."""

    def __init__(self, key: Key, cached: Object | None) -> None:
        self.key = key
        self.uid = cached.metadata.uid if cached is not None else ""
        self.versions = {cached.metadata.resource_version} if cached is not None else set[str]()
        self.gone: set[str] = set()
        self.relisted = False
        """True: a whole list has been taken in since, so events may never tell of the result."""

    def applied(self, key: Key, version: str) -> None:
        """That version of the key shows in the cache now."""
        if key == self.key:
            self.versions.add(version)

    def deleted(self, key: Key, uid: str) -> None:
        """That uid is gone."""
        if key == self.key:
            self.gone.add(uid)


class Relist(Flight):
    """A list under way: which keys have been written meanwhile; those are read one by one."""

    def __init__(self) -> None:
        super().__init__(("", ""), None)
        self.touched: set[Key] = set()

    def applied(self, key: Key, version: str) -> None:
        """See `Flight.applied`."""
        self.touched.add(key)

    def deleted(self, key: Key, uid: str) -> None:
        """See `Flight.deleted`."""
        self.touched.add(key)


def compare(one: Object, other: Object) -> int:
    """1 when `one` is surely newer, -1 when surely older, 0 when neither shows."""
    if one.metadata.generation != other.metadata.generation:
        return 1 if one.metadata.generation > other.metadata.generation else -1
    mine: dict[str, int] = getattr(one.status, "writers", {})
    theirs: dict[str, int] = getattr(other.status, "writers", {})
    for writer in mine.keys() | theirs.keys():
        difference = mine.get(writer, 0) - theirs.get(writer, 0)
        if difference:
            return 1 if difference > 0 else -1
    return 0
