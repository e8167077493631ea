"""A date is told with the place that it counts on, which the status keeps until the job starts."""

from __future__ import annotations

import msgspec

from shoal.objects.ranges import IndexSet
from shoal.schedule.decide import Decider
from shoal.schedule.plan import Policy, Write
from shoal.schedule.snapshot import JobRow, Snapshot
from tests.schedule.world import NOW, Job, apply, gang, node, snapshot, write_of

GPUS = ("g0", "g1", "g2", "g3")


def world(*more: Job) -> Snapshot:
    """Two nodes of four GPUs: on `a` three are taken for a minute, on `b` three for an hour. `wide` asks
    for two tasks of two, so that it has to wait for `a`."""
    running = [
        Job("short", gang(1, gpu=3), "+0@a/g0/g1/g2", wall_seconds=160.0),
        Job("long", gang(1, gpu=3), "+0@b/g0/g1/g2", wall_seconds=3700.0, priority=9),
    ]
    waiting = Job("wide", gang(2, gpu=2), created=NOW - 50, wall_seconds=600.0)
    return snapshot([node(name, gpus=GPUS) for name in "ab"], [*running, waiting, *more])


def told(before: Snapshot, now: float = NOW) -> tuple[Snapshot, dict[str, Write]]:
    """What every job's status says after a decision at that time."""
    plan = Decider().decide(before, Policy(), now).plan
    after = before
    for write in plan.writes:
        after = apply(after, write, now)
    return after, {row.name: write for row in after.jobs if (write := write_of(plan, row.name))}


def row(of: Snapshot, name: str) -> JobRow:
    return next(each for each in of.jobs if each.name == name)


def places(of: JobRow) -> set[tuple[int, str, str]]:
    return {
        (index, slots.node, device)
        for slots in of.place
        for at, index in enumerate(IndexSet.parse(slots.indices))
        for device in slots.devices[2 * at : 2 * at + 2]
    }


def test_a_date_is_written_with_its_place() -> None:
    after, _ = told(world())
    wide = row(after, "wide")
    assert wide.code == "Dated"
    assert wide.promised is not None
    assert wide.promised - NOW < 100, "when `short` has had its time"
    assert {(index, name) for index, name, _ in places(wide)} == {(0, "a"), (1, "a")}
    assert {device for _, _, device in places(wide)} == set(GPUS)


def test_what_it_was_told_stays_while_others_come() -> None:
    """One GPU is free on each node. Who would still be on `a` at the date goes to `b`; and the date is
    where it was, whoever came first by name."""
    after, _ = told(world())
    date, place = row(after, "wide").promised, row(after, "wide").place
    late = Job("aaa", gang(1, gpu=1), created=NOW, wall_seconds=3000.0)
    (come,) = snapshot(after.nodes, [late]).jobs
    come = msgspec.structs.replace(come, form=len(after.forms))
    joined = msgspec.structs.replace(after, forms=(*after.forms, late.form), jobs=(*after.jobs, come))
    then, writes = told(joined, NOW + 10)
    assert {slots.node for slots in writes["aaa"].slots or ()} == {"b"}
    assert (row(then, "wide").promised, row(then, "wide").place) == (date, place)


def test_it_starts_there_at_its_date() -> None:
    after, _ = told(world())
    place = row(after, "wide").place
    ended = msgspec.structs.replace(
        after, jobs=tuple(each for each in after.jobs if each.name != "short")
    )
    then, writes = told(ended, NOW + 61)
    assert writes["wide"].slots == place
    assert (row(then, "wide").promised, row(then, "wide").place) == (None, ())


def test_a_place_on_a_node_that_is_gone_is_laid_anew() -> None:
    after, _ = told(world())
    without = msgspec.structs.replace(
        after,
        nodes=tuple(each for each in after.nodes if each.name != "a"),
        jobs=tuple(each for each in after.jobs if each.name != "short"),
    )
    then, _ = told(without, NOW + 1)
    assert {slots.node for slots in row(then, "wide").place} == {"b"}
    assert (row(then, "wide").promised or 0) > NOW + 3000
