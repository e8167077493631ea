"""What a job's end means for a shell: one exit code per outcome, and one sentence for people."""

from __future__ import annotations

from shoal.cli.failures import JOB_CANCELLED, JOB_FAILED, JOB_NOT_FINISHED
from shoal.cli.text import duration
from shoal.objects.job import Job

__all__ = ["outcome_code", "process_code", "sentence"]


def outcome_code(job: Job) -> int:
    """0 succeeded, 100 failed, 103 cancelled, 101 not finished: for `wait` and `logs -f`."""
    codes = {"Succeeded": 0, "Failed": JOB_FAILED, "Cancelled": JOB_CANCELLED}
    return codes.get(job.status.phase, JOB_NOT_FINISHED)


def process_code(job: Job) -> int:
    """The exit code of the task that decided; where none did, as `outcome_code`. For `run`."""
    code = job.status.exit_code
    outcome = outcome_code(job)
    if outcome != JOB_FAILED or code is None or not 0 < code < 256:
        return outcome
    return code


def sentence(job: Job, now: float) -> str:
    """How it ended: `succeeded after 3m10s`, `failed after 4.0s: worker 1 exited with 3`."""
    status = job.status
    began = status.started or job.metadata.created
    lasted = duration((status.finished or now) - began)
    if status.phase == "Succeeded":
        return f"succeeded after {lasted}"
    if status.phase == "Suspended":
        return "is suspended"
    word = {"Failed": "failed", "Cancelled": "was cancelled"}.get(status.phase, "has not finished")
    why = f": {status.message}" if status.message and status.phase == "Failed" else ""
    return f"{word} after {lasted}{why}" if status.started else f"{word} before it started{why}"
