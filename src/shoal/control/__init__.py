"""What drives objects towards their spec: level-triggered controllers and the runner they share.

- `runner`: calls controllers for the keys that changed, one call per key at a time
- `lease`: leadership, and the guard that every write passes
- `cache`: the objects of one kind, by list and watch; writes go through it
- `task_cache`: the same for the tasks and nodes of a cluster, where absence needs a complete list
- `queue_usage`: what jobs hold, the numbers of queues, and the hours that budgets have cost
- `rows`: objects as the scheduler's rows
- `scheduler_cache`: the scheduler's snapshot, kept up to date row by row
- `scheduling`: snapshot, `schedule.decide`, the plan's writes in their safe order, decisions as files
- `context`: what controllers are made of; `controllers`: their list
- `node`: an object for every node; `job`: a job's tasks

A controller reads caches, decides, and applies; killed after any of its writes, the next pass finishes
the work. Knows the Protocols of store, cluster and history, and no implementation of them.
"""
