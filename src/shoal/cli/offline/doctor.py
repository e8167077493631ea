"""`shoal doctor`: whether Shoal can work here, and how far it can keep tasks apart."""

from __future__ import annotations

import sys

from shoal.cli.offline.checks import Check, Isolation, all_checks, isolations
from shoal.cli.options import reports, verb
from shoal.cli.output import write_document, write_names
from shoal.cli.settings import Settings
from shoal.cli.table import Table
from shoal.objects.text import BOLD, painted


@verb("doctor")
@reports
def command(settings: Settings) -> int:
    """Check this machine: isolation, versions, disk.

    Each isolation is tried with a real task, so what is said here is what tasks get. The exit code is 1
    when something keeps Shoal from working; an isolation that cannot be had does not.
    """
    checks = list(all_checks(settings))
    kept_apart = isolations()
    strict = all(each.enforced for each in kept_apart)
    healthy = all(check.status != "problem" for check in checks)
    if settings.output == "name":
        write_names(check.name for check in checks)
    elif settings.machine_readable:
        document = {"healthy": healthy, "checks": checks, "isolations": kept_apart, "strict": strict}
        write_document(settings, document)
    else:
        _print(checks, kept_apart, strict)
    return 0 if healthy else 1


def _print(checks: list[Check], kept_apart: list[Isolation], strict: bool) -> None:
    Table(["CHECK", "", "FOUND"]).write([[c.name, c.status, c.found] for c in checks])
    advice = [check for check in checks if check.remedy]
    for check in advice:
        print(f"  {check.name}: {check.remedy}")
    print("\nWhat keeps tasks apart on this machine")
    Table(["ISOLATION", "", "A TASK HAS"]).write(
        [[each.name, "yes" if each.enforced else "no", each.promise] for each in kept_apart]
    )
    for each in kept_apart:
        if not each.enforced:
            print(f"  no {each.name}: {each.reason}")
    only_strict = ", ".join(each.name for each in kept_apart if not each.by_default)
    print(f"\n{only_strict} are given to jobs with `isolation: strict` alone, the others to every task.")
    verdict = "can be had here" if strict else "is refused here, because not all of it can be had"
    print(painted(f"`isolation: strict` {verdict}.", BOLD, sys.stdout))
