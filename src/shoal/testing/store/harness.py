"""What an implementation brings to the suite, and what the suite's tests have in common."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol, TypeVar

import msgspec
import pytest

from shoal.clock import Clock
from shoal.objects.job import Job, JobSpec, JobStatus, Role
from shoal.objects.kinds import JOB, Kind
from shoal.objects.meta import Metadata, Object, Part
from shoal.store.backend import Window
from shoal.store.base import SYSTEM, Actor, Authorise, Event, Page, Store, Watch

__all__ = [
    "ALICE",
    "DEADLINE_SECONDS",
    "Capability",
    "NewerJob",
    "Rules",
    "StoreHarness",
    "collect",
    "document",
    "everything",
    "job",
    "names",
    "needs",
    "newer_job",
    "opened",
    "start_of",
    "together",
]

Capability = Literal["authorise", "clock", "window", "durable", "shared", "newer", "lagging"]
"""authorise, clock, window: `open` obeys the argument of that name. durable: what was acknowledged is
there when the store is opened again, also by another process after the first was killed. shared: two
stores that are open at once have the same objects, and each sees what the other writes. newer: it takes
objects of a newer Shoal, which this one cannot decode. lagging: a watch reads no further ahead than its
reader polls, so one that is not polled falls out of the window."""

ALICE = Actor("alice")
DEADLINE_SECONDS = 30.0
"""How long a test waits for what must happen soon."""

F = TypeVar("F", bound=Callable[..., Any])  # Any: a test takes whatever fixtures it names


class StoreHarness(Protocol):
    """Opens the store under test; one harness, and one set of objects, per test."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this implementation can do."""
        ...

    def open(
        self,
        *,
        authorise: Authorise | None = None,
        clock: Clock | None = None,
        window: Window | None = None,
    ) -> Store:
        """Open the store; the test closes it. None: whatever is usual."""
        ...

    def command(self) -> tuple[str, str]:
        """How another process opens the same store (durable): the `module:function` to call, and its
        one argument."""
        ...


def needs(*capabilities: Capability) -> Callable[[F], F]:
    """The test is skipped where the harness lacks one of these."""

    def mark(test: F) -> F:
        test.__dict__["needs"] = capabilities
        return test

    return mark


class Rules:
    """Base of each part of the suite."""

    @pytest.fixture
    def harness(self) -> StoreHarness:
        """To be given by the implementation's test class."""
        raise NotImplementedError("override the fixture `harness`")

    @pytest.fixture(autouse=True)
    def _capable(self, request: pytest.FixtureRequest, harness: StoreHarness) -> None:
        wanted: Sequence[Capability] = getattr(request.function, "needs", ())
        missing = [each for each in wanted if each not in harness.capabilities]
        if missing:
            pytest.skip(f"this store declares no capability {', '.join(missing)}")

    @pytest.fixture
    def store(self, harness: StoreHarness) -> Iterator[Store]:
        """The store under test, empty."""
        with opened(harness) as store:
            yield store


@contextmanager
def opened(harness: StoreHarness, **arguments: Any) -> Generator[Store]:  # Any: those of `open`
    """A store that is closed afterwards."""
    store = harness.open(**arguments)
    try:
        yield store
    finally:
        store.close()


def job(name: str, namespace: str = "default", **metadata: Any) -> Job:  # Any: fields of Metadata
    """A small job."""
    return Job(
        metadata=Metadata(name=name, namespace=namespace, **metadata),
        spec=JobSpec(roles=(Role(command=("true",)),)),
    )


class NewerSpec(Part, frozen=True, kw_only=True):
    """A spec with a value that this version does not know."""

    runtime: str = "plain"
    roles: tuple[Role, ...]


class NewerJob(Object, frozen=True, kw_only=True):
    """A job of a newer Shoal: a store keeps it, and `Job` cannot decode it."""

    kind: str = "Job"
    spec: NewerSpec
    status: JobStatus = JobStatus()


def newer_job(name: str, namespace: str = "default", runtime: str = "quantum") -> NewerJob:
    """A job that this version cannot decode; with runtime `plain` it can."""
    spec = NewerSpec(runtime=runtime, roles=(Role(command=("true",)),))
    return NewerJob(metadata=Metadata(name=name, namespace=namespace), spec=spec)


def document(store: Store, name: str, namespace: str = "default", kind: Kind = JOB) -> Any:
    """The stored document, as plain values."""
    return msgspec.json.decode(store.record(kind, namespace, name, actor=SYSTEM).document)


def names(page: Page) -> list[str]:
    """The names on a page."""
    return [record.object.metadata.name for record in page.records]


def everything(store: Store, kind: Kind = JOB) -> dict[tuple[str, str], bytes]:
    """All objects of a kind: key to document."""
    page = store.list(kind, actor=SYSTEM)
    return {record.object.key: record.document for record in page.records}


def start_of(store: Store, kind: Kind = JOB) -> str:
    """The version to watch from to see whatever comes."""
    return store.list(kind, actor=SYSTEM, limit=1).version


def collect(watch: Watch, count: int) -> list[Event]:
    """The next `count` events that are no bookmarks; fails when they do not come, or more do."""
    events: list[Event] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(events) < count:
        assert time.monotonic() < deadline, f"{len(events)} of {count} events came: {events}"
        events += [event for event in watch.wait(0.2) if event.type != "Bookmark"]
    events += [event for event in watch.poll() if event.type != "Bookmark"]
    assert len(events) == count, events
    return events


def together(*actions: Callable[[], None]) -> None:
    """Run each on a thread of its own, at once; the first failure is raised."""
    failures: list[BaseException] = []
    gate = threading.Barrier(len(actions))

    def run(action: Callable[[], None]) -> None:
        gate.wait(DEADLINE_SECONDS)
        try:
            action()
        except BaseException as error:  # noqa: BLE001  raised again by the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(action,), daemon=True) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive(), "a thread does not end"
    if failures:
        raise failures[0]
