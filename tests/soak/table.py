"""What came of a soak, for people."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence

from tests.soak.conduct import Soak

__all__ = ["pauses_by_kind", "table"]

NEAR_SECONDS = 3.0
"""A pause that begins so soon after a blow is counted as its effect."""


def table(soak: Soak, shown_seconds: float) -> str:
    """Blows and pauses by kind, recoveries, counts, and the processes that were watched so long."""
    tape, harm = soak.tape, soak.harm
    usual = statistics.median([end - begin for begin, end in tape.pauses() if begin <= soak.ended])
    lines = [
        f"{'blow':<14}{'count':>6}{'missed':>8}{'pause p50':>11}{'p95':>8}{'worst':>8}   seconds, "
        f"a usual step of {usual:.3f} taken off",
    ]
    by_kind = pauses_by_kind(soak)
    counts = Counter(each.kind for each in harm.dealt)
    for kind in sorted(counts | harm.missed):
        count = counts[kind]
        lines.append(f"{kind:<14}{count:>6}{harm.missed[kind]:>8}" + _spread(by_kind[kind], usual))
    how = Counter(each["how"] for each in soak.recoveries.values())
    seconds = [each["seconds"] for each in soak.recoveries.values()]
    lines += [
        f"recoveries {len(seconds)}: {dict(how)}, as members measure them"
        + _spread(seconds, 0.0)
        + f", lost steps {sum(each['lostSteps'] for each in soak.recoveries.values())}",
        f"steps {tape.step}, by number of workers {dict(sorted(tape.sizes.items()))}",
        f"views {tape.epoch}, workers started {soak.places.starts}, states compared {tape.compared}, "
        f"states taken from a peer {tape.jumps}",
        f"kept at the end, bytes: {soak.kept_bytes}",
        f"{'process':<16}{'pid':>8}{'watched s':>11}{'MiB':>8}{'MiB/h':>9}"
        f"{'more fds':>10}{'threads':>9}",
    ]
    for life in soak.health.longest(shown_seconds):
        lines.append(
            f"{life.who:<16}{life.pid:>8}{life.seconds:>11.0f}{life.held[-1].own_mib:>8.1f}"
            f"{life.mib_an_hour():>9.1f}{life.more('descriptors'):>10g}{life.more('threads'):>9g}"
        )
    return "\n".join([*lines, *(f"PROBLEM {each}" for each in soak.problems)])


def pauses_by_kind(soak: Soak) -> dict[str, list[float]]:
    """For each blow the longest time without a step that began just before the next blow or soon."""
    pauses = soak.tape.pauses()
    begins = [begin for begin, _ in pauses]
    found: dict[str, list[float]] = defaultdict(list)
    dealt = soak.harm.dealt
    for number, blow in enumerate(dealt):
        until = min([blow.at + NEAR_SECONDS, *(each.at for each in dealt[number + 1 : number + 2])])
        first = max(bisect_left(begins, blow.at) - 1, 0)  # the step that it broke has begun before
        last = bisect_left(begins, until)
        if last > first:
            found[blow.kind].append(max(end - begin for begin, end in pauses[first:last]))
    return found


def _spread(seconds: Sequence[float], less: float) -> str:
    if not seconds:
        return f"{'-':>11}{'-':>8}{'-':>8}"
    each = sorted(max(value - less, 0.0) for value in seconds)
    p95 = each[min(int(len(each) * 0.95), len(each) - 1)]
    return f"{statistics.median(each):>11.3f}{p95:>8.3f}{each[-1]:>8.3f}"
