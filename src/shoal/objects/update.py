"""What may change after creation.

A running job was placed, told its peers and counted for what its spec said; most of it can only be
another job's. What can change is what every part of the platform looks at again and again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from shoal.objects import codec
from shoal.objects.errors import Invalid, Problem
from shoal.objects.job import Job, JobSpec, Role
from shoal.objects.meta import Object
from shoal.objects.paths import Finding, Path, spell

__all__ = ["FINISHED", "check_update"]

FINISHED = frozenset({"Succeeded", "Failed", "Cancelled"})

_ALWAYS = frozenset({"ttlAfterFinished", "cleanUp", "cancelled"})
"""Of a job, until it is deleted."""
_UNFINISHED = frozenset(
    {"suspend", "priority", "preemptible", "speed", "limits", "gracePeriod", "queue", "roles"}
)
"""Of a job, until it has finished."""
_SCALABLE = frozenset({"replicas", "minReplicas"})
"""Of a role."""
_AGAIN = "cannot be changed after creation: delete the job and create it again"


def check_update(old: Object, new: Object) -> None:
    """Whether `new` may take the place of `old`, which is as stored, with its status.

    Raises:
        Invalid: it may not; `problems` holds every field that may not change.
    """
    problems = [Problem(spell(finding.path), finding.message) for finding in _findings(old, new)]
    if problems:
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise Invalid(f"{problems[0]}{more}", tuple(problems))


def _findings(old: Object, new: Object) -> Iterator[Finding]:
    if type(old) is not type(new):
        yield Finding(("kind",), f"wants {old.kind}; found {new.kind}")
    elif old.metadata.deleted and old.spec != new.spec:
        yield Finding(("spec",), "the object is being deleted: its spec takes no more changes")
    elif isinstance(old, Job) and isinstance(new, Job):
        yield from _job(old, new)


def _job(old: Job, new: Job) -> Iterator[Finding]:
    finished = old.status.phase in FINISHED
    for name in _changed(old.spec, new.spec):
        path: Path = ("spec", name)
        if name not in _ALWAYS | _UNFINISHED:
            yield Finding(path, _AGAIN)
        elif finished and name not in _ALWAYS:
            message = f"the job has finished ({old.status.phase}): create it again to run it again"
            yield Finding(path, message)
        elif name == "cancelled" and not new.spec.cancelled:
            yield Finding(path, "a cancelled job cannot be revived: create it again")
        elif name == "queue" and old.status.phase not in ("Pending", "Suspended"):
            yield Finding(path, "a job changes its queue only while it is Pending or Suspended")
        elif name == "roles":
            yield from _roles(old.spec, new.spec)


def _roles(old: JobSpec, new: JobSpec) -> Iterator[Finding]:
    path: Path = ("spec", "roles")
    if [role.name for role in old.roles] != [role.name for role in new.roles]:
        yield Finding(path, f"the roles and their order {_AGAIN}")
        return
    for at, (before, after) in enumerate(zip(old.roles, new.roles, strict=True)):
        for name in _changed(before, after):
            if name not in _SCALABLE:
                yield Finding((*path, at, name), _AGAIN)


def _changed(old: JobSpec | Role, new: JobSpec | Role) -> list[str]:
    """Wire names of the fields that differ."""
    before, after = codec.canonical(old), codec.canonical(new)
    different: list[str] = []
    for field in msgspec.structs.fields(type(before)):
        value: Any = getattr(before, field.name)
        if value != getattr(after, field.name):
            different.append(field.encode_name)
    return different
