"""Runs a plan on a real home while its server, agents and supervisors are killed at random moments."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Self

import msgspec

from shoal.objects.errors import Conflict, Unavailable
from shoal.objects.job import FINISHED, Job
from shoal.objects.kinds import JOB
from shoal.testing.chaos import Chaos, Kind
from tests.scenarios.storm.people import People
from tests.scenarios.storm.plan import Edit, Planned
from tests.scenarios.storm.progress import settled_members
from tests.scenarios.storm.trace import Tape

__all__ = ["Hail", "play"]

_TICK_SECONDS = 0.05
_LOOK_SECONDS = 1.0
_UNTIL_THERE_SECONDS = 15.0
"""How long a blow waits for its victim: a component is back within a second or two."""


class Hail:
    """Kills from a thread of its own: so many blows at random moments within a span, a third each for
    the server, the agents and the supervisors."""

    def __init__(self, chaos: Chaos, blows: int, span_seconds: float) -> None:
        self._chaos = chaos
        kinds: list[Kind] = ["server", "agent", "supervisor"]
        self._kinds = [kinds[number % 3] for number in range(blows)]
        chaos.random.shuffle(self._kinds)
        self._moments = sorted(chaos.random.uniform(0.5, span_seconds) for _ in range(blows))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._fall, name="hail")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def over(self) -> bool:
        """Every blow has fallen."""
        return not self._thread.is_alive()

    def _fall(self) -> None:
        begun = time.monotonic()
        for kind, moment in zip(self._kinds, self._moments, strict=True):
            if self._over.wait(max(0.0, begun + moment - time.monotonic())):
                return
            deadline = time.monotonic() + _UNTIL_THERE_SECONDS
            while self._chaos.strike((kind,)) is None and time.monotonic() < deadline:
                if self._over.wait(_TICK_SECONDS):
                    return


def play(people: People, tape: Tape, plan: list[Planned], hail: Hail, most_seconds: float) -> None:
    """Submit and edit as planned, until every job has ended and every blow has fallen.

    Raises:
        TimeoutError: that takes too long.
    """
    begun = time.monotonic()
    coming = deque(plan)
    going: dict[str, tuple[float, deque[Edit]]] = {}
    look = 0.0
    while True:
        now = time.monotonic() - begun
        if now > most_seconds:
            raise TimeoutError(f"after {now:.0f} s these have not ended: {_unfinished(people)}")
        while coming and coming[0].at <= now:
            planned = coming.popleft()
            people.create(planned.name, planned.spec)
            going[planned.name] = (time.monotonic() - begun, deque(planned.edits))
        for name, (since, edits) in going.items():
            if edits and since + edits[0].after <= now and _edit(people, name, edits[0]):
                edits.popleft()
        if now >= look:
            look = now + _LOOK_SECONDS
            tape.copy()
            if not coming and hail.over and not _unfinished(people):
                return
        time.sleep(_TICK_SECONDS)


def _edit(people: People, name: str, edit: Edit) -> bool:
    """Make the edit to exactly the version that was looked at; False: later.

    While part of the job's slots wait for a node that is silent, how far the job has come depends on
    when that node answers, which no trace tells: nobody edits it then.
    """
    try:
        job = people.client.get(Job, "default", name)
        spec = edit.change(job.spec)
        if job.status.phase in FINISHED or spec == job.spec:
            return True
        if not settled_members(job):
            return False
        people.client.update(msgspec.structs.replace(job, spec=spec))
    except (Conflict, Unavailable):
        return False
    return True


def _unfinished(people: People) -> list[str]:
    records = people.insist(lambda: people.client.list(JOB).records)
    return [
        record.object.metadata.name for record in records if record.object.status.phase not in FINISHED
    ]
