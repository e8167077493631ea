"""Who may do what: people everything (they are all the owner so far), a job's token only its job."""

from __future__ import annotations

from typing import Literal

from shoal.objects.errors import Forbidden
from shoal.objects.kinds import JOB, Kind
from shoal.store.base import Actor, Verb

__all__ = ["Action", "authorise", "require"]

Action = Literal["tasks", "exec", "logs", "explain", "history", "usage", "tokens", "server"]
"""What can be asked beside the verbs of the store."""

_OWN_JOB: tuple[Action, ...] = ("tasks", "exec")
"""What a job's token allows on the job itself, beside reading it."""


def authorise(actor: Actor, verb: Verb, kind: Kind, namespace: str, name: str) -> None:
    """See `shoal.store.base.Authorise`."""
    if actor.job is None:
        return
    if verb == "get" and kind.name == JOB.name and (namespace, name) == actor.job[:2]:
        return
    raise Forbidden(f"the token of job {actor.job[1]} does not allow to {verb} {kind.plural}")


def require(actor: Actor, action: Action, namespace: str = "", name: str = "") -> None:
    """Refuse what the actor may not do to this job (or, unnamed, to the cluster).

    Raises:
        Forbidden: it may not.
    """
    if actor.job is None or (action in _OWN_JOB and (namespace, name) == actor.job[:2]):
        return
    whose = f" of job {name}" if name else ""
    raise Forbidden(f"the token of job {actor.job[1]} does not allow {action}{whose}")
