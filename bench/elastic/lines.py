"""How many lines of a plain training loop change (G20): real scripts, run, compared line by line.

A changed or added line counts once; removed lines are told apart. Indentation, imports' order and the
docstring do not count: what is compared is each line without its indentation.
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.elastic import loops
from bench.elastic.jobs.job import REPOSITORY
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
    """Both scripts run alone, without any server; torchrun's with two workers."""
    plain, shoal, torchrun = ((_FOLDER / f"{n}.py").read_text() for n in ("plain", "shoal", "torchrun"))
    with tempfile.TemporaryDirectory(prefix="shoal-bench-lines-", dir=plan.folder) as folder:
        reached = {
            "plain": _run(plan, folder, "plain"),
            "Shoal, alone": _run(plan, folder, "shoal"),
            "Shoal, 2 workers of torchrun": _run(plan, folder, "shoal", workers=2),
            "torchrun": _run(plan, folder, "torchrun", workers=2),
        }
    ours, theirs = changes(plain, shoal), changes(plain, torchrun)
    row = Row(
        "lines of a loop written or changed", _GOAL, ours.written, "lines", f"{ours.removed} removed",
        f"torchrun, DDP: {theirs.written}, {theirs.removed} removed",
    )  # fmt: skip
    told = ", ".join(f"{name} {accuracy:.3f}" for name, accuracy in reached.items())
    remark = f"The loop's change to Shoal (indentation aside); accuracy reached: {told}.\n\n"
    return Report([row], remarks=[f"{remark}```diff\n{ours.diff}\n```"])


def _code(text: str) -> list[str]:
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith('"""')]


def _run(plan: Plan, folder: str, name: str, workers: int = 0) -> float:
    """The accuracy that a script ends with.

    Raises:
        subprocess.CalledProcessError: it failed.
        ValueError: it did not come to its end.
    """
    words = [plan.python]
    if workers:
        words += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
    place = Path(folder, f"{name}-{workers}")
    place.mkdir()
    words += ["-m", f"bench.elastic.loops.{name}", str(place)]
    done = subprocess.run(
        words, cwd=REPOSITORY, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, check=True, text=True, timeout=_SECONDS,
    )  # fmt: skip
    last = _LAST.search(done.stdout)
    if last is None:
        raise ValueError(f"{name} ended without its last step: {done.stdout[-500:]}")
    return float(last[1])
