"""The local cluster: one machine's processes, under node agents and supervisors.

What a server or a command line touches:
- `home`: every path under `$SHOAL_HOME`, its locks and its sockets
- `nodes`: which logical nodes the home has, and how much each may use
- `components`: starts, keeps alive and ends the server and the agents
- `cluster`: `LocalCluster`, the `shoal.cluster.base.Cluster` over all agents of a home
  (`link`: the connection to one agent and its mirror of that agent's tasks; `session`: `exec`)

The agent (`python -m shoal.cluster.local.agent`), the judge of its node:
- `agent`: the process; `loop`: its one thread; `requests`: what clients may ask
- `ledger`: what it has promised, durably; `admission`: what it can promise; `ports`: what it leases
- `protocol`: frames and messages between it and its clients
- `launching`, `stopping`, `recovery`, `leftovers`: a task's way through it
- `usage`, `execs`, `folders`: what a task uses, what runs beside it, what it leaves behind

The supervisor of one task (`supervisor*`, `isolation/`), standard library only; `taskfiles` is all
that it and the agent know of each other.

An agent imports the standard library and msgspec. Nothing here knows of Jobs, Queues or the store.
"""
