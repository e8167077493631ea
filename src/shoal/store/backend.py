"""What the rules of the contract need of the place where rows live.

`TransactionalStore` turns a `Backend` into a `Store`; a dict and a SQL database are backends.

Versions and cursors are opaque to clients, and `epoch.revision` to the stores of this package. A
revision counts the changes of one store, in the order in which they became durable. The epoch is drawn
when a store is made, so that a version from before the store was thrown away and made again is
recognised instead of pointing at something else.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

from shoal.objects.errors import Expired, Invalid
from shoal.objects.kinds import Kind
from shoal.objects.selectors import Selector
from shoal.store.base import Watch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Found:
    """A stored object, as far as the rules look at it."""

    kind: str
    uid: str
    document: bytes


@dataclass(frozen=True, slots=True)
class Row(Found):
    """An object to store: also its key, and what else it is found by."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    owners: tuple[str, ...]
    """Uids."""


@dataclass(frozen=True, slots=True)
class Change:
    """One step of the store's history. A Deleted row is the object's last state."""

    revision: int
    type: Literal["Added", "Modified", "Deleted"]
    row: Row
    reowned: bool = False
    """Modified: its owners are others than before."""

    def step(self) -> Step:
        """As watches deliver it."""
        row = self.row
        return Step(self.revision, self.type, row.kind, row.namespace, row.document)


@dataclass(frozen=True, slots=True)
class Step:
    """A change as watches deliver it."""

    revision: int
    type: Literal["Added", "Modified", "Deleted"]
    kind: str
    namespace: str
    document: bytes


@dataclass(frozen=True)
class Window:
    """How much of its history a store keeps for watches to catch up from; the oldest goes first.

    Whichever bound is met first counts. A store trims in portions, so a little more may be there.
    """

    count: int = 10_000
    age_seconds: float = 3600.0
    bytes: int = 16 << 20


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A lease as stored. `renewals` differs after each write of it; `holder` is "" when it is free."""

    name: str
    holder: str
    token: int
    duration_seconds: float
    renewals: int


@dataclass(frozen=True, slots=True)
class Query:
    """Which objects of a kind, in the order of (namespace, name)."""

    kind: str
    namespace: str = ""
    """Empty: all."""
    selector: Selector = field(default_factory=Selector)
    after: tuple[str, str] | None = None
    """Only those behind this key."""
    limit: int = 0
    """0: all."""


class View(Protocol):
    """What is stored, as the transaction that asks sees it."""

    def find(self, kind: str, namespace: str, name: str) -> Found | None:
        """The object of that key."""
        ...

    def has_uid(self, uid: str) -> bool:
        """Whether an object of that uid is there."""
        ...

    def owned_by(self, uid: str) -> Sequence[Found]:
        """Objects that name that uid as an owner."""
        ...

    def next_version(self) -> tuple[int, str]:
        """The next revision and its version."""
        ...


class Transaction(View, Protocol):
    """A `View` that can be changed. Nothing is visible to others before it has ended."""

    def apply(self, changes: tuple[Change, ...]) -> None:
        """Make these changes, in this order."""

    def lease(self, name: str) -> LeaseRow | None:
        """The lease of that name."""
        ...

    def put_lease(self, row: LeaseRow) -> None:
        """Store a lease."""


class Snapshot(Protocol):
    """One moment of the store, for reading."""

    @property
    def head(self) -> int:
        """The newest revision."""
        ...

    @property
    def compacted_revision(self) -> int:
        """Changes up to here are no longer kept."""
        ...

    def document(self, kind: str, namespace: str, name: str) -> bytes | None:
        """The object of that key."""
        ...

    def documents(self, query: Query) -> list[tuple[str, str, bytes]]:
        """What the query asks for: namespace, name, document."""
        ...

    def count(self, query: Query) -> int:
        """How many the query asks for, whatever its limit."""
        ...


class Backend(Protocol):
    """Where rows live. Thread-safe."""

    @property
    def epoch(self) -> str:
        """Identifies this store among all others; see `versions`."""
        ...

    def write(self, operation: Callable[[Transaction], T]) -> T:
        """Run the operation in a transaction and answer when its changes are durable.

        The operation refuses by raising before it has changed anything. It may be run more than
        once, on any thread. Watches have its changes before this returns.

        Raises:
            Unavailable: the database cannot take it now.
        """
        ...

    def read(self) -> AbstractContextManager[Snapshot]:
        """Look at one moment of the store; it blocks no writer."""
        ...

    def watch(self, kind: Kind, namespace: str, version: str) -> Watch:
        """See `shoal.store.base.Store.watch`."""
        ...

    def close(self) -> None:
        """Let go of files, connections and threads; idempotent."""


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
