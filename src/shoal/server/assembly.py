"""The parts of a server put together: everything but the process around them."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.admission.admission import Admission
from shoal.clock import Clock
from shoal.cluster.local.home import Home
from shoal.objects.job import Job
from shoal.server.app import create_app
from shoal.server.auth import Authenticator
from shoal.server.authorise import authorise
from shoal.server.doors import Doors
from shoal.server.notebook import Audit
from shoal.server.parts import Parts, declared_capacities
from shoal.server.services import Services
from shoal.server.serving import Serving
from shoal.server.tokens import JobTokens, Tokens
from shoal.store.base import SYSTEM, Store

__all__ = ["Assembled", "assemble"]


@dataclass(frozen=True)
class Assembled:
    """A server, ready to be run and to have its later parts started."""

    services: Services
    parts: Parts
    serving: Serving


def assemble(home: Home, store: Store, clock: Clock, doors: Doors, *, shared: bool = False) -> Assembled:
    """Put a server together over an open store and open doors."""
    job_tokens, people, audit = JobTokens.of(home.keys), Tokens(home.keys / "tokens.json"), Audit()
    parts = Parts(home, store, clock, tokens=job_tokens, audit=audit, shared=shared)
    services = Services(
        store=store,
        admission=Admission(
            store,
            lambda: declared_capacities(home),
            lambda: parts.settings().topology,
            authorise=authorise,
        ),
        clock=clock,
        people=people,
        audit=audit,
        home=home.path,
        readiness=parts.readiness,
        warnings=parts.warnings,
    )

    async def find_job(namespace: str, name: str) -> Job:
        return await services.on_store.call(store.get, Job, namespace, name, actor=SYSTEM)

    services.authenticator = Authenticator(job_tokens, people, find_job)
    return Assembled(services, parts, Serving(create_app(services), doors, services.signals))
