"""A report of an elastic job against what its status says already. Pure.

The status keeps a short summary, written when something happened and every few seconds otherwise; what
is told again is not counted again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from shoal.objects.job import ElasticStatus, Recovery, WorldSize
from shoal.objects.meta import Stamp

__all__ = ["KEPT_RECOVERIES", "KEPT_SIZES", "News", "Report", "ReportedRecovery", "news_of"]

KEPT_RECOVERIES = 8
KEPT_SIZES = 48
"""Changes of size that the status keeps; history has the older ones."""

_QUIET_SECONDS = 5.0
"""Numbers alone are written no more often."""
_LONGEST_MESSAGE = 1000

Natural = Annotated[int, msgspec.Meta(ge=0)]
Span = Annotated[float, msgspec.Meta(ge=0)]


class ReportedRecovery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One recovery as it is told. `at` is a stamp, 0: now; `epoch` tells it from others."""

    seconds: Span
    at: Stamp = 0.0
    epoch: Natural = 0
    how: Annotated[str, msgspec.Meta(max_length=64)] = ""
    lost_steps: Natural = 0
    world: Natural = 0
    lost: Annotated[tuple[str, ...], msgspec.Meta(max_length=1000)] = ()
    """Who went, and why, in words."""


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a coordinator tells now and then. Unknown members are left alone: it may be newer."""

    world: Natural = 0
    step: Natural = 0
    goodput: Span | None = None
    step_seconds: Span | None = None
    recoveries: Annotated[tuple[ReportedRecovery, ...], msgspec.Meta(max_length=1000)] = ()
    """The newest ones, told before or not."""
    state: Annotated[str, msgspec.Meta(max_length=64)] = ""
    message: str = ""
    """What has just happened; empty: nothing new."""


@dataclass(frozen=True)
class News:
    """The new status, and what of it is new."""

    status: ElasticStatus
    recoveries: tuple[Recovery, ...] = ()
    causes: tuple[str, ...] = ()
    """Of each of the recoveries, who went and why, in words."""
    resized: bool = False
    state_changed: bool = False
    told: bool = False
    """It has said something new."""


def news_of(known: ElasticStatus | None, report: Report, attempt: int, now: Stamp) -> News | None:
    """What a report adds to what is known; None when it is not worth a write yet."""
    old = known or ElasticStatus()
    reported = [each for each in report.recoveries if _is_fresh(old, each, attempt)]
    fresh = tuple(
        Recovery(
            at=each.at or now,
            epoch=each.epoch,
            how=each.how,
            seconds=each.seconds,
            lost_steps=each.lost_steps,
            world=each.world,
        )
        for each in reported
    )
    goes_on = (report.state, attempt) == (old.state, old.attempt)
    message = report.message[:_LONGEST_MESSAGE] or (old.message if goes_on else "")
    resized = known is None or report.world != old.world
    said = not goes_on or message != old.message
    if not (fresh or resized or said) and 0 <= now - old.reported < _QUIET_SECONDS:
        return None
    sizes = (*old.sizes, WorldSize(at=now, size=report.world)) if resized else old.sizes
    status = ElasticStatus(
        attempt=attempt,
        state=report.state,
        message=message,
        world=report.world,
        step=report.step,
        goodput=report.goodput,
        step_seconds=report.step_seconds,
        recoveries=old.recoveries + len(fresh),
        recovery_seconds=old.recovery_seconds + sum(each.seconds for each in fresh),
        lost_steps=old.lost_steps + sum(each.lost_steps for each in fresh),
        last_recoveries=(*old.last_recoveries, *fresh)[-KEPT_RECOVERIES:],
        sizes=sizes[-KEPT_SIZES:],
        reported=now,
    )
    return News(
        status,
        recoveries=fresh,
        causes=tuple(", ".join(each.lost)[:_LONGEST_MESSAGE] for each in reported),
        resized=resized,
        state_changed=report.state != old.state,
        told=bool(message) and message != old.message,
    )


def _is_fresh(old: ElasticStatus, told: ReportedRecovery, attempt: int) -> bool:
    if attempt != old.attempt or not old.last_recoveries:
        return True
    return told.epoch > old.last_recoveries[-1].epoch
