"""What drives objects towards their spec: level-triggered controllers and the runner they share.

- `runner`: calls controllers for the keys that changed, one call per key at a time, with backoff
- `work`: the runner's queue of keys
- `lease`: leadership, and the guard that every write passes
- `cache`: the objects of one kind, kept up to date by list and watch; writes go through it
- `tasks`: the same for the tasks of a cluster, where absence needs a complete list to be believed
- `scheduling`: snapshot, `schedule.decide`, and the plan's writes in their safe order
- `job`, `queue`, `node`: one controller per kind

A controller reads caches, decides, and applies; killed after any of its writes, the next pass finishes
the work. Knows the Protocols of store, cluster and history, and no implementation of them.
"""
