"""The local cluster: one machine's processes, under node agents and supervisors.

What a server or a command line touches:
- `home`: every path under `$SHOAL_HOME`, its locks and its sockets; the user's other homes
- `nodes`: which logical nodes the home has, and how much each may use, and what the machine has
- `settings`: what holds for the whole cluster; `platform`: all of it, as a server needs it
- `components`: starts the server and the agents; `watchdog` restarts those that end;
  `shutdown` ends them
- `cluster`: `LocalCluster`, the `shoal.cluster.base.Cluster` over all agents of a home
  (`link`: the connection to one agent and its mirror of that agent's tasks; `session`)

The agent (`python -m shoal.cluster.local.agent`), the judge of its node:
- `agent`: the process and its clients' requests; `loop`: its one thread, and what ends each turn
- `protocol`: frames and messages; `serving`: the sockets
- `node`: what it knows and does; `ledger`: that durably; `admission`: what it can promise
- `task_monitor`: monitors one task; `launch`: its folders, its `launch.json`, its supervisor
- `recovery`: finds again what an earlier agent has left
- `usage`: what tasks use; `execs`: commands and probes beside them
- `groups`: where its tasks' control groups are; `processes`: pids that are sure to mean what they meant

The supervisor of one task (`supervisor*`, `isolation/`), standard library only; `taskfiles` is all
that it and the agent know of each other.
- `supervisor`: the script; `supervisor_main`: its loop, with log, stop and memory watch
- `supervisor_plan`: what a launch asks for; `supervisor_child`: its init;
  `supervisor_command`: the command
- `supervisor_files`: its files, and how a task ended; `supervisor_processes`: processes below it

An agent imports the standard library and msgspec. Nothing here knows of Jobs, Queues or the store.
"""
