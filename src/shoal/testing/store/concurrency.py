"""Many writers at once, with watches looking on: nothing lost, nothing twice, one order for all."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from functools import partial

import pytest

from shoal.objects.errors import Conflict, Exists, NotFound
from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from shoal.store.base import SYSTEM, Event, Store
from shoal.testing.store.harness import (
    DEADLINE_SECONDS,
    Rules,
    StoreHarness,
    everything,
    job,
    needs,
    opened,
    start_of,
    together,
)
from shoal.testing.store.status import patch
from shoal.testing.store.writes import edited

__all__ = ["ConcurrencyRules"]

WRITERS = 8
ROUNDS = 60


class ConcurrencyRules(Rules):
    """Rules that only show when many write."""

    @pytest.mark.slow
    def test_watches_tell_every_write_once_and_in_one_order(self, store: Store) -> None:
        storm(store, [store] * WRITERS, seed=random.randrange(1 << 30))

    @pytest.mark.slow
    @needs("shared")
    def test_so_do_watches_of_another_store(self, harness: StoreHarness) -> None:
        with opened(harness) as one, opened(harness) as two:
            storm(two, [one] * (WRITERS // 2) + [two] * (WRITERS // 2), seed=random.randrange(1 << 30))

    @pytest.mark.slow
    def test_of_rivals_for_one_version_one_wins(self, store: Store) -> None:
        store.create(job("counter", annotations={"n": "0"}), actor=SYSTEM)

        def add() -> None:
            for _ in range(20):
                while True:
                    found = store.get(Job, "default", "counter", actor=SYSTEM)
                    number = int(found.metadata.annotations["n"]) + 1
                    try:
                        store.update(edited(found, annotations={"n": str(number)}), actor=SYSTEM)
                        break
                    except Conflict:
                        continue

        together(*[add] * WRITERS)
        found = store.get(Job, "default", "counter", actor=SYSTEM)
        assert found.metadata.annotations == {"n": str(20 * WRITERS)}

    def test_of_rivals_for_one_name_one_wins(self, store: Store) -> None:
        made: list[Job] = []

        def attempt() -> None:
            with suppress(Exists):
                made.append(store.create(job("a"), actor=SYSTEM))

        together(*[attempt] * WRITERS)
        assert made == [store.get(Job, "default", "a", actor=SYSTEM)]

    def test_of_rivals_for_one_counter_one_wins(self, store: Store) -> None:
        made = store.create(job("a"), actor=SYSTEM)
        winners: list[int] = []

        def attempt(number: int) -> None:
            try:
                patch(store, made, 0, {"attempt": number + 1})
                winners.append(number + 1)
            except Conflict:
                pass

        together(*(partial(attempt, number) for number in range(WRITERS)))
        status = store.get(Job, "default", "a", actor=SYSTEM).status
        assert ([status.attempt], status.writers) == (winners, {"job": 1})


def storm(observed: Store, writers: list[Store], seed: int) -> None:
    """All write at random; watches of `observed` must agree with each other, and with what is left."""
    print(f"seed {seed}")  # noqa: T201  shown when it fails
    start = start_of(observed)
    acknowledged: list[list[str]] = [[] for _ in writers]
    finished = threading.Event()
    followed: list[list[Event]] = [[], [], []]

    def write(number: int) -> None:
        act(writers[number], random.Random(f"{seed}-{number}"), number, acknowledged[number])

    def follow(events: list[Event]) -> None:
        watch = observed.watch(JOB, actor=SYSTEM, version=start)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            found = watch.wait(0.05)
            events += [event for event in found if event.record]
            if finished.is_set() and {e.version for e in events} >= set().union(*acknowledged):
                break
        watch.close()

    def write_all() -> None:
        try:
            together(*(partial(write, number) for number in range(len(writers))))
        finally:
            finished.set()

    together(write_all, *(partial(follow, events) for events in followed))
    versions = [event.version for event in followed[0]]
    assert len(set(versions)) == len(versions)
    assert set(versions) == set().union(*acknowledged)
    assert followed[1] == followed[0]
    assert followed[2] == followed[0]
    for mine in acknowledged:
        positions = [versions.index(version) for version in mine]
        assert positions == sorted(positions)
    left: dict[tuple[str, str], bytes] = {}
    for event in followed[0]:
        assert event.record is not None
        key = event.record.object.key
        assert (event.type == "Added") == (key not in left)
        left[key] = event.record.document
        if event.type == "Deleted":
            del left[key]
    assert left == everything(observed)


def act(store: Store, choice: random.Random, number: int, acknowledged: list[str]) -> None:
    """One writer: its own objects, and some that it fights over with the others."""
    for turn in range(ROUNDS):
        name = choice.choice((f"own-{number}-{turn % 4}", f"shared-{turn % 3}"))
        try:
            match choice.randrange(4):
                case 0:
                    written = store.create(job(name), actor=SYSTEM)
                case 1:
                    found = store.get(Job, "default", name, actor=SYSTEM)
                    labels = {"by": f"{number}-{turn}"}
                    written = store.update(edited(found, labels=labels), actor=SYSTEM)
                case 2:
                    found = store.get(Job, "default", name, actor=SYSTEM)
                    counter = found.status.writers.get("job", 0)
                    fields = {"message": f"{number}-{turn}"}
                    written = patch(store, found, counter, fields).object
                case _:
                    written = store.delete(JOB, "default", name, actor=SYSTEM).object
        except (Conflict, Exists, NotFound):
            continue
        acknowledged.append(written.metadata.resource_version)
