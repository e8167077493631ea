"""How many lines of a plain training loop change (G20): real scripts, run, compared line by line.

A changed or added line counts once; removed lines are told apart. Indentation, imports' order and the
docstring do not count: what is compared is each line without its indentation.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.elastic import loops
from bench.elastic.jobs.job import REPOSITORY, NotReached
from bench.elastic.jobs.torchft import lighthouse_words
from bench.elastic.jobs.torchrun import free_port
from bench.elastic.plan import Plan
from bench.elastic.report import Report
from bench.row import Row

__all__ = ["Changes", "changes", "lines"]

_FOLDER = Path(loops.__file__).parent
_GOAL, _SECONDS = 5, 120.0
_LAST = re.compile(r"step 256: accuracy (\d\.\d+)")


@dataclass(frozen=True)
class Changes:
    """Between two scripts."""

    written: int
    """Lines of the second that are not in the first."""
    removed: int
    """Lines of the first with nothing in their place."""
    diff: str


def changes(before: str, after: str) -> Changes:
    """From one script's text to another's; their first docstrings are left out."""
    old, new = _code(before), _code(after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    written = removed = 0
    for kind, old_first, old_end, new_first, new_end in matcher.get_opcodes():
        if kind != "equal":
            written += new_end - new_first
            removed += max(0, (old_end - old_first) - (new_end - new_first))
    shown = difflib.unified_diff(old, new, "plain", "changed", n=0, lineterm="")
    return Changes(written, removed, "\n".join(line for line in shown if not line.startswith("@@")))


def lines(plan: Plan) -> Report:
    """Ours and the plain one run alone, without any server; each peer's as it has to be run."""
    plain = _text("plain")
    ways = [
        _Way("plain", "plain"),
        _Way("Shoal, alone", "shoal"),
        _Way("Shoal, 2 of torchrun", "shoal", 2),
        _Way("torchrun, DDP", "torchrun", 2),
    ]
    if plan.peers:
        ways += [_Way("torchft", "torchft", peer=True), _Way("AdaptDL", "adaptdl", peer=True)]
    with tempfile.TemporaryDirectory(prefix="shoal-bench-lines-", dir=plan.folder) as folder:
        reached = {way.name: _run(plan, Path(folder), way) for way in ways}
    ours = changes(plain, _text("shoal"))
    others = {way.name: changes(plain, _text(way.script)) for way in ways[3:]}
    beside = "; ".join(
        f"{name}: {each.written}, {each.removed} removed" for name, each in others.items()
    )
    row = Row(
        "lines of a loop written or changed", _GOAL, ours.written, "lines", f"{ours.removed} removed",
        beside, number="G20",
    )  # fmt: skip
    told = ", ".join(f"{name} {accuracy:.3f}" for name, accuracy in reached.items())
    remark = f"The loop's change to Shoal (indentation aside); accuracy reached: {told}.\n\n"
    return Report([row], remarks=[f"{remark}```diff\n{ours.diff}\n```"])


@dataclass(frozen=True)
class _Way:
    """How a script is run: by `workers` of torchrun, or (0) by itself; `peer`: where peers are."""

    name: str
    script: str
    workers: int = 0
    peer: bool = False


def _text(script: str) -> str:
    return (_FOLDER / f"{script}.py").read_text()


def _code(text: str) -> list[str]:
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith('"""')]


def _run(plan: Plan, folder: Path, way: _Way) -> float:
    """The accuracy that a script ends with.

    Raises:
        subprocess.CalledProcessError: one that is not a peer's failed.
        NotReached: it did not come to its end.
    """
    words = [plan.peers if way.peer and plan.peers else plan.python, "-W", "ignore"]
    if way.workers:
        words += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={way.workers}"]
    place = folder / way.name.replace(" ", "-").replace(",", "")
    place.mkdir()
    words += ["-m", f"bench.elastic.loops.{way.script}", str(place)]
    with _lighthouse(plan) if way.script == "torchft" else contextlib.nullcontext({}) as told:
        done = subprocess.run(
            words, cwd=REPOSITORY, env={**os.environ, "OMP_NUM_THREADS": "1", **told},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False, text=True, timeout=_SECONDS,
        )  # fmt: skip
    if way.script in ("plain", "shoal"):
        # a peer's may abort when it takes its groups down: after its last step that is nobody's concern
        done.check_returncode()
    last = _LAST.search(done.stdout)
    if last is None:
        raise NotReached(f"{way.name} ended without its last step: {done.stdout[-500:]}")
    return float(last[1])


@contextlib.contextmanager
def _lighthouse(plan: Plan) -> Iterator[dict[str, str]]:
    """What torchft's script has to be told about one that runs meanwhile; the script waits for it."""
    port = free_port()
    process = subprocess.Popen(
        lighthouse_words(plan.peers or plan.python, port, {}), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield {"TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}"}
    finally:
        process.kill()
        process.wait(10)
