"""`python -m shoal.elastic.coordinator`: the coordinator of one job.

Exit status: 0 when the job is over or this process got SIGTERM, 4 when the job has failed (not with
a platform: a report says so there, and another status than 0 counts against its machines), 3 when
another coordinator has taken over, 2 for a wrong command line, 1 when it could not start.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from shoal import faults
from shoal.clock import SystemClock
from shoal.elastic import wire
from shoal.elastic.coordinator import record as records_format
from shoal.elastic.coordinator.endpoint import EndpointRecords
from shoal.elastic.coordinator.record import Record
from shoal.elastic.coordinator.records import Kept, Records, Refused, SqliteRecords, Unavailable
from shoal.elastic.coordinator.service import Service
from shoal.elastic.coordinator.state import Settings

__all__ = ["main"]

_LOAD_SECONDS = 30.0
REPLACED = 3
FAILED = 4


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a coordinator until it ends; returns the exit status."""
    options = _parse(arguments)
    clock = SystemClock()
    try:
        records = _records(options, environment)
        kept = _load(records, clock)
        record = _record(options, environment, kept)
        settings = Settings(
            platform=kept.minimum is not None,
            expect=kept.target or options.expect,
            star_limit=options.star_limit,
            allow_lost_state=options.allow_lost_state,
        )
        service = Service(records, kept, record, settings, clock, _bind(options, environment))
    except (Unavailable, Refused, OSError, ValueError) as error:
        print(f"coordinator: {error}", file=sys.stderr)  # noqa: T201 - the process's only voice
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _frame: service.stop(signal.Signals(got).name))
    outcome = service.run(lambda: _publish_address(options.address_file, service.address, record.key))
    sentence = f"the job has failed: {outcome.reason}" if outcome.failed else outcome.reason
    print(f"coordinator: {sentence}", file=sys.stderr)  # noqa: T201
    if outcome.ended and options.address_file is not None:  # for workers that connect too late
        ended = {"reason": outcome.reason, "failed": outcome.failed}
        _write(options.address_file, {"ended": ended})
    if outcome.replaced:
        return REPLACED
    return FAILED if outcome.failed and not options.api else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m shoal.elastic.coordinator")
    parser.add_argument("--minimum", type=int, default=1, help="members below which nothing goes on")
    parser.add_argument("--maximum", type=int, help="members above which no worker is admitted")
    parser.add_argument(
        "--expect", type=int, default=0, help="workers that the first view waits for a while"
    )
    parser.add_argument(
        "--bind", metavar="HOST:PORT", help="where to listen (default 127.0.0.1, any port)"
    )
    parser.add_argument("--address-file", type=Path, help="where to say the address and the key")
    parser.add_argument(
        "--star-limit", type=int, default=Settings.star_limit, metavar="N",
        help="workers above which sidecars watch each other instead of beating to this process",
    )  # fmt: skip
    parser.add_argument("--allow-lost-state", action="store_true", help="may begin again at step 0")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--sqlite", type=Path, metavar="PATH", help="keep the record in this file")
    where.add_argument("--api", action="store_true", help="keep the record with the platform")
    options = parser.parse_args(arguments)
    if options.minimum < 1:
        parser.error("--minimum is at least 1")
    if options.maximum is not None and options.maximum < options.minimum:
        parser.error("--maximum is not less than --minimum")
    return options


def _records(options: argparse.Namespace, environment: Mapping[str, str]) -> Records:
    if options.api:
        return EndpointRecords.from_environment(environment)
    return SqliteRecords(options.sqlite)


def _load(records: Records, clock: SystemClock) -> Kept:
    """Read what is kept; the platform may be starting as well, so for a while it is asked again."""
    until = clock.monotonic() + _LOAD_SECONDS
    while True:
        try:
            return records.load()
        except Unavailable:
            if clock.monotonic() >= until:
                raise
            signal.sigtimedwait((), 0.2)


def _record(options: argparse.Namespace, environment: Mapping[str, str], kept: Kept) -> Record:
    """The record to go on from: the kept one of this attempt, or a new one that continues its count.

    Raises:
        Refused: what is kept belongs to a later attempt.
        ValueError: what is kept is no record.
    """
    job, attempt = environment.get("SHOAL_JOB_UID", ""), int(environment.get("SHOAL_ATTEMPT", "0") or 0)
    former = records_format.from_bytes(kept.data) if kept.data is not None else Record()
    if former.job == job and former.attempt > attempt:
        raise Refused(f"attempt {former.attempt} of the job has begun; this is attempt {attempt}")
    if not former.key or (former.job, former.attempt) != (job, attempt):
        former = former.next_attempt(job, attempt, secrets.token_hex(16))
    minimum = kept.minimum if kept.minimum is not None else options.minimum
    maximum = kept.maximum if kept.maximum is not None else options.maximum
    return replace(former, minimum=minimum, maximum=maximum)


def _bind(options: argparse.Namespace, environment: Mapping[str, str]) -> tuple[str, int]:
    if options.bind:
        return wire.address_of(options.bind)
    host, port = environment.get("SHOAL_HOST"), environment.get("SHOAL_PORT_RENDEZVOUS")
    return (host or "127.0.0.1", int(port)) if options.api and port else ("127.0.0.1", 0)


def _publish_address(path: Path | None, address: str, key: str) -> None:
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, {"address": address, "key": key})
    faults.point("coordinator.address.written")


def _write(path: Path, told: Mapping[str, object]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(told, file)
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
