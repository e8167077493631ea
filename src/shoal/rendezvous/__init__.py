"""The environment and files with which a task finds its peers: one pure function per framework.

`render` is the entry point. Every task gets the `plain` contract, and the one of its job's runtime over
it. Endpoints are resolved by the cluster and never spelled here; ranks belong to the members that are
present, in the order of roles and indices, without holes. Every key that could meet one of an earlier
attempt holds the attempt.

- `group`: the members, their ranks and addresses, what all contracts are made of
- `contracts`: the contracts, and which runtime has which; `mpi`: MPI's, with its remote shell

Imports `shoal.objects` alone; pure: no I/O, no clock, no randomness. `docs/design/rendezvous.md` lists
every variable.
"""

from shoal.rendezvous.contracts import render

__all__ = ["render"]
