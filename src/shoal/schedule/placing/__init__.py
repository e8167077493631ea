"""Where tasks go: gangs and single tasks on nodes, as arrays, so that a decision costs microseconds.

Everything about a node is a row: what is free of each resource, and how much of each of its GPUs. How
many tasks of a shape each node would hold is counted once and then only for nodes that changed; all
choices (which node, which rack) are made on those counts by one rule: as few as can be, the last one as
tight as can be, ties to the first.

- `asks`: what is asked: shapes, groups, gangs, how far apart they may be; and where tasks are
- `topology`: which domain of each level (block, rack) each node is in
- `room`: what is free; taking and giving back, with a journal to roll back
- `slots`: which GPUs of a node a task gets
- `fits`: how many tasks of a shape fit on each node, kept up as nodes change
- `choose`: the rule, on bare counts
- `scopes`: in which domains a gang may be tried, the best first
- `dealing`: tasks over the nodes of one domain, close together or evenly
- `joint`: where several groups together are hopeless
- `place`: gangs, all or nothing
- `bulk`: many equal tasks that do not care about each other
- `foresee`: what would fit, without doing it; `prospect`: the same of one group, by counting alone
- `shortfall`: why a gang does not fit, in numbers
- `grow`: more tasks for a gang that runs, next to those that it has
- `clearing`, `consolidate`: which jobs to move so that another can start

Pure: no clock, no chance, equal input gives equal output. It knows nothing of queues, priorities and
time; who is placed, and in which order, others decide.
"""
