"""Where tasks run: one Protocol, several clusters (processes, virtual time, and pods elsewhere).

- `base`: the Protocol and the rules that the contract suite (`shoal.testing.cluster`) checks
- `platform`: the Protocol of everything that a cluster brings to a server
- `local/`: processes on one machine, under node agents and supervisors
- `simulated`: tasks that run in virtual time

A cluster knows tasks and nodes. It knows nothing of Jobs, Queues or decisions.
"""
