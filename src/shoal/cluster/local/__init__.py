"""The local cluster: one machine's processes, under node agents and supervisors.

What a server or a command line touches:
- `home`: every path under `$SHOAL_HOME`, its locks and its sockets; `known_homes`: the user's others
- `nodes`: which logical nodes the home has, and how much each may use (`machine`: what there is)
- `settings`: what holds for the whole cluster; `platform`: all of it, as a server needs it
- `components`: starts the server and the agents; `watchdog` restarts those that end;
  `shutdown` ends them
- `cluster`: `LocalCluster`, the `shoal.cluster.base.Cluster` over all agents of a home
  (`link`: the connection to one agent and its mirror of that agent's tasks; `watching`; `session`)

The agent (`python -m shoal.cluster.local.agent`), the judge of its node:
- `agent`: the process; `loop`: its one thread; `turn`: what happens at the end of each of its turns
- `protocol`: frames and messages; `serving`: its clients; `requests`: what each may ask
- `node`: what it knows and does; `ledger`: that durably; `admission`, `ports`: what it can promise
- `attendant`: looks after one task; `launching`: what its supervisor is given; `folders`: where
- `recovery`: finds again what an earlier agent has left
- `usage`: what tasks use; `execs`: what runs beside them; `readiness`: their probes
- `groups`: where its tasks' control groups are; `processes`: pids that are sure to mean what they meant

The supervisor of one task (`supervisor*`, `isolation/`), standard library only; `taskfiles` is all
that it and the agent know of each other.

An agent imports the standard library and msgspec. Nothing here knows of Jobs, Queues or the store.
"""
