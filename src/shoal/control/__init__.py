"""What drives objects towards their spec: level-triggered controllers and the runner they share.

- `runner`, `work`: call controllers for the keys that changed, one call per key at a time, with backoff
- `lease`: leadership, and the guard that every write passes
- `cache`, `flights`: the objects of one kind, by list and watch; writes go through it
- `tasks`: the same for the tasks of a cluster, where absence needs a complete list to be believed
- `rows`, `queue_rows`, `holdings`: objects as the scheduler's rows
- `picture`: its snapshot, kept up to date
- `scheduling`: snapshot, `schedule.decide`, and the plan's writes in their safe order
- `decisions`: the newest as files
- `queue`, `shares`: a queue's numbers; `spending`: the hours that its budgets have cost
- `node`: an object for every node; `job`: a job's tasks
- `changes`: what of a status differs

A controller reads caches, decides, and applies; killed after any of its writes, the next pass finishes
the work. Knows the Protocols of store, cluster and history, and no implementation of them.
"""
