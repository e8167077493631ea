"""What drives objects towards their spec: level-triggered controllers and the runner they share.

- `runner`: calls controllers for the keys that changed, one call per key at a time
- `lease`: leadership, and the guard that every write passes
- `cache`: the objects of one kind, by list and watch; writes go through it
- `task_cache`: the same for the tasks of a cluster, where absence needs a complete list to be believed
- `queue_usage`: what jobs hold, and use of queues; `rows`: objects as the scheduler's rows
- `scheduler_cache`: the scheduler's snapshot, kept up to date row by row
- `scheduling`: snapshot, `schedule.decide`, the plan's writes in their safe order, decisions as files
- `controllers`: the list of controllers, and what each is built from
- `queue`, `queue_usage`: a queue's numbers, and the hours that its budgets have cost
- `node`: an object for every node; `job`: a job's tasks

A controller reads caches, decides, and applies; killed after any of its writes, the next pass finishes
the work. Knows the Protocols of store, cluster and history, and no implementation of them.
"""
