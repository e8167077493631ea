"""`shoal doctor`: whether Shoal can work here, and how far it can keep tasks apart. One function for
each subject yields what it found and what to do."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from shoal import __version__
from shoal.cli.offline.start import nearest_folder
from shoal.cli.options import reports, verb
from shoal.cli.output import Table, write_document, write_names
from shoal.cli.settings import Settings, connect
from shoal.objects.errors import ShoalError, Unavailable
from shoal.objects.meta import Part
from shoal.objects.text import BOLD, cores, memory, painted, plural

_LITTLE_DISK_BYTES = 2 * 2**30
_NO_DISK_BYTES = 100 * 2**20
_FEW_FILES = 1024
_OPTIONAL = {
    "torch": "training: pip install 'shoal[train]'",
    "psycopg": "a Postgres store: pip install 'shoal[postgres]'",
    "pynvml": "NVIDIA GPUs: pip install 'shoal[gpu]'",
}


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


class Check(Part, frozen=True, kw_only=True):
    """One thing that was looked at."""

    name: str
    status: Literal["ok", "note", "warning", "problem"]
    """note: nothing is wrong, but good to know; problem: Shoal cannot work so."""
    found: str
    remedy: str = ""


class Isolation(Part, frozen=True, kw_only=True):
    """One way in which tasks are kept apart, and whether this machine can."""

    name: str
    promise: str
    enforced: bool
    by_default: bool
    """Whether every task gets it, or only those with `isolation: strict`."""
    reason: str = ""
    """Why not."""


def all_checks(settings: Settings) -> Iterator[Check]:
    """Everything but the isolations."""
    yield _shoal()
    yield _system()
    yield from _machine()
    yield _home(settings.home)
    yield _disk(settings.home)
    yield _open_files()
    yield from _server(settings)
    yield _libraries()


def isolations() -> list[Isolation]:
    """Each isolation, tried out with a real task; tens of milliseconds."""
    from shoal.cluster.local.isolation.namespaces import DEFAULT, PROMISES

    if sys.platform == "linux":
        from shoal.cluster.local.isolation.probe import probe

        found = probe()
    else:
        found = dict.fromkeys(PROMISES, f"only Linux has it, and this is {platform.system()}")
    return [
        Isolation(
            name=name,
            promise=promise,
            enforced=found[name] == "enforced",
            by_default=name in DEFAULT,
            reason="" if found[name] == "enforced" else found[name],
        )
        for name, promise in PROMISES.items()
    ]


def _shoal() -> Check:
    python = f"Python {platform.python_version()} at {sys.executable}"
    return Check(name="shoal", status="ok", found=f"{__version__}, {python}")


def _system() -> Check:
    found = f"{platform.system()} {platform.release()} {platform.machine()}"
    if sys.platform == "linux":
        return Check(name="system", status="ok", found=found)
    return Check(name="system", status="warning", found=found, remedy="tasks are not kept apart here")


def _machine() -> Iterator[Check]:
    from shoal.cluster.local.nodes import cpu_millis, gpu_ids, memory_bytes

    found = f"{cores(cpu_millis())} cores, {memory(memory_bytes())} memory"
    yield Check(name="machine", status="ok", found=found)
    gpus = gpu_ids()
    driver = Path("/dev/nvidiactl").exists()
    if driver and not gpus:
        yield Check(
            name="gpus",
            status="warning",
            found="there is an NVIDIA driver, but no GPU was found",
            remedy="install nvidia-ml-py (pip install 'shoal[gpu]'), and see what nvidia-smi says",
        )
    else:
        yield Check(name="gpus", status="ok", found=f"{plural(len(gpus), 'GPU')}")


def _home(home: Path) -> Check:
    there = nearest_folder(home)
    if not os.access(there, os.W_OK | os.X_OK):
        return Check(
            name="home",
            status="problem",
            found=f"{home} cannot be written",
            remedy="set SHOAL_HOME to a folder of your own",
        )
    if there != home:
        return Check(name="home", status="ok", found=f"{home}, made at the first start")
    owner, mode = home.stat().st_uid, home.stat().st_mode & 0o777
    if owner != os.geteuid():
        return Check(
            name="home",
            status="problem",
            found=f"{home} belongs to another user",
            remedy="set SHOAL_HOME to a folder of your own",
        )
    if mode & 0o077:
        return Check(
            name="home",
            status="warning",
            found=f"{home} can be entered by others (mode {mode:o})",
            remedy=f"chmod 700 {home}",
        )
    return Check(name="home", status="ok", found=str(home))


def _disk(home: Path) -> Check:
    usage = shutil.disk_usage(nearest_folder(home))
    found = f"{memory(usage.free)} of {memory(usage.total)} free"
    if usage.free < _NO_DISK_BYTES:
        return Check(
            name="disk", status="problem", found=found, remedy="make room; logs go to logs/ there"
        )
    if usage.free < _LITTLE_DISK_BYTES:
        return Check(name="disk", status="warning", found=found, remedy="make room for logs and output")
    return Check(name="disk", status="ok", found=found)


def _open_files() -> Check:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < _FEW_FILES:
        return Check(
            name="open files", status="warning", found=f"at most {hard}", remedy="ulimit -n 4096"
        )
    return Check(name="open files", status="ok", found=f"at most {soft}")


def _server(settings: Settings) -> Iterator[Check]:
    with connect(settings, timeout_seconds=5.0) as client:
        try:
            version = client.version()
            readiness = client.readiness()
        except Unavailable:
            yield Check(name="server", status="note", found="not running", remedy=settings.spelt("up"))
            return
        except ShoalError as error:
            yield Check(name="server", status="problem", found=error.message, remedy=error.hint)
            return
    found = f"{version.version}, process {version.pid}"
    wrong = {part: state for part, state in readiness.parts.items() if state != "ok"}
    for warning in readiness.warnings:
        remedy = f"{settings.spelt('up')} says it anew, with --policy, --topology or --record"
        yield Check(name="settings", status="warning", found=warning, remedy=remedy)
    for sentence in readiness.failing:
        remedy = f"it is tried again; see {settings.home / 'log' / 'server.log'}"
        yield Check(name="failing", status="warning", found=sentence, remedy=remedy)
    if wrong:
        states = "; ".join(f"{part}: {state}" for part, state in wrong.items())
        remedy = f"see {settings.home / 'log' / 'server.log'}"
        yield Check(name="server", status="warning", found=f"{found}; {states}", remedy=remedy)
    else:
        yield Check(name="server", status="ok", found=found)


def _libraries() -> Check:
    """Looked for where Shoal is; a task's script may have an environment of its own."""
    there = [name for name in _OPTIONAL if find_spec(name) is not None]
    missing = [f"{name} ({what})" for name, what in _OPTIONAL.items() if name not in there]
    found = ", ".join(there) or "none"
    if missing:
        return Check(name="extras", status="note", found=found, remedy=f"for more: {'; '.join(missing)}")
    return Check(name="extras", status="ok", found=found)
