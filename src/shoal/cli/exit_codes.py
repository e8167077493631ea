"""What the end of an object means for a shell: an exit code per outcome, and a sentence."""

from __future__ import annotations

from typing import Any

from shoal.cli.failures import JOB_CANCELLED, JOB_FAILED, JOB_NOT_FINISHED
from shoal.objects.kinds import kind_of
from shoal.objects.text import duration

_CODES = {"succeeded": 0, "failed": JOB_FAILED, "cancelled": JOB_CANCELLED}


def outcome_code(obj: Any) -> int:
    """0 succeeded, 100 failed, 103 cancelled, 101 not finished: for `wait` and `logs -f`."""
    ended = _outcome(obj)
    return JOB_NOT_FINISHED if ended is None else _CODES[ended.result]


def process_code(obj: Any) -> int:
    """The exit code of the process that decided; where none did, as `outcome_code`. For `run`."""
    ended, outcome = _outcome(obj), outcome_code(obj)
    code = None if ended is None else ended.exit_code
    return code if outcome == JOB_FAILED and code is not None and 0 < code < 256 else outcome


def sentence(obj: Any, now: float) -> str:
    """How it ended: `succeeded after 3m10s`, `failed after 4.0s: worker 1 exited with 3`."""
    ended = _outcome(obj)
    if ended is None:
        state = kind_of(obj).state(obj)
        return "is suspended" if state.phase == "Suspended" else "has not finished"
    began = ended.started or obj.metadata.created
    lasted = duration((ended.finished or now) - began)
    if ended.result == "succeeded":
        return f"succeeded after {lasted}"
    word = "failed" if ended.result == "failed" else "was cancelled"
    why = f": {ended.message}" if ended.message and ended.result == "failed" else ""
    return f"{word} after {lasted}{why}" if ended.started else f"{word} before it started{why}"


def _outcome(obj: Any) -> Any:
    hook = kind_of(obj).outcome
    return None if hook is None else hook(obj)
