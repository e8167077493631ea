"""Pods with fractions of GPUs, packed one by one onto the nodes of a cluster that they fill up.

The experiment is that of the openb trace published with FGD (Weng et al., USENIX ATC 2023): pods arrive
in random order until they ask for 130 % of the GPUs, none leaves, and what counts is how many of the
GPUs are in use then. A pod that fits is placed, always; one that does not is refused.

- `nodes`, `pods`: the two files, as arrays; pods that are alike are one shape
- `arrivals`: in which order which pods come
- `states`: what is free on a node, and which states a pod can leave it in (pure)
- `fleet`: the nodes, each in one of the states seen so far
- `filling`: pods one by one onto an empty cluster
- `where`: the place with the highest score, worked out once for each shape and state
- `fitting`: which of the typical shapes fit which of many states (pure)
- what states are worth (pure): `best_fit`, `fragments` (FGD), `outlook` with `holes` (Shoal)
- `rehearsal`: who comes to which kind of node, found out on a small cluster
- `at_random`: any place at all
- `policies`: all of them by name
- `experiment`: one policy, one order of pods; `report`: one record for all orders

Nothing here changes while a pod is placed but the fleet; a seed is the only randomness.
"""
