"""Which isolations this machine grants, found by asking for all of them.

A real supervisor runs a trivial command with every isolation wanted and none required; what it lists as
unenforced is what cannot be had, in the kernel's own words. So a probe can never say other than what
tasks will find. It takes some tens of milliseconds, and the answer is kept in a file until the machine
restarts, the user or the control group changes, or Shoal does.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from pathlib import Path

import shoal
from shoal import statefiles
from shoal.cluster.local import groups, launch
from shoal.cluster.local.isolation import namespaces

_log = logging.getLogger(__name__)

_ENFORCED = "enforced"
_COMMAND = ["sh", "-c", ":"]


def probe(cache: Path | None = None) -> dict[str, str]:
    """Each isolation, `enforced` or the reason why not. `cache` is a file of our own."""
    key = _key()
    if cache is not None:
        found = _cached(cache, key)
        if found is not None:
            return found
    found = _try_all()
    if cache is not None:
        statefiles.write(cache, json.dumps({"key": key, "isolations": found}).encode())
    return found


def _key() -> str:
    """Changes with whatever the answer may depend on."""
    facts = [shoal.__version__, str(os.geteuid()), *os.uname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/cgroup", "/proc/self/mountinfo"):
        try:
            facts.append(Path(path).read_text())
        except OSError:
            continue
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()


def _cached(cache: Path, key: str) -> dict[str, str] | None:
    found = statefiles.read(cache, _decode, _log.warning)
    return found[1] if found is not None and found[0] == key else None


def _decode(document: bytes) -> tuple[str, dict[str, str]]:
    """Raises:
    ValueError, TypeError, KeyError: the file holds something else.
    """
    held = json.loads(document)
    return str(held["key"]), {str(name): str(how) for name, how in held["isolations"].items()}


def _try_all() -> dict[str, str]:
    parents = groups.prepare_parents(f"probe-{os.getpid()}")
    base = Path(tempfile.mkdtemp(prefix="shoal-probe-"))
    try:
        return _try_in(base, parents)
    finally:
        shutil.rmtree(base)
        groups.release_parents(parents)


def _try_in(base: Path, parents: dict[str, str]) -> dict[str, str]:
    folders = {name: base / "home" / name for name in ("task", "scratch", "output", "rendezvous", "log")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    wanted = {
        "namespace": "shoal", "task": "probe", "argv": _COMMAND, "env": {"PATH": os.defpath},
        "cwd": str(base), "scratch": str(folders["scratch"]), "output": str(folders["output"]),
        "rendezvous": str(folders["rendezvous"]),
        "log": {"directory": str(folders["log"]), "max_segment_bytes": 1 << 16, "max_segments": 1},
        "limits": {"cpu_millis": 100, "cpu_limit_millis": 1000, "memory_bytes": 256 << 20, "pids": 64},
        "cgroup_parents": parents,
        "isolation": {
            "mode": "default", "wanted": namespaces.STRICT, "home": str(base / "home"),
            "sandbox": str(base / "sandbox"),
        },
    }  # fmt: skip
    task = folders["task"]
    (task / "launch.json").write_text(json.dumps(wanted))
    with (base / "errors").open("wb+") as errors:
        spawned = launch.spawn(str(task), errors.fileno())
        os.close(spawned.ready)
        os.waitpid(spawned.pid, 0)
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip().splitlines()
    try:
        ended = json.loads((task / "exit.json").read_text())
        started = json.loads((task / "started.json").read_text())
    except FileNotFoundError:
        last = said[-1] if said else "its supervisor gave no reason"
        return dict.fromkeys(namespaces.STRICT, f"no task can be started: {last}")
    if ended["exit_code"] != 0:
        return dict.fromkeys(namespaces.STRICT, f"no task can be started: {ended['message']}")
    lacking = dict(entry.split(": ", 1) for entry in started["unenforced"])
    return {name: lacking.get(name, _ENFORCED) for name in namespaces.STRICT}
