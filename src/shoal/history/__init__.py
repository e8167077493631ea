"""What outlives a task: events, attempts, usage, metric points, decisions and logs.

History is written once and only ever trimmed by age and size; it is never read to decide anything.

- `base`: the Protocols and the rules that the contract suite (`shoal.testing.history`) checks
- `sql`: rows in SQLite or Postgres, in a database of their own
- `segments`: log segments in files: the layout that supervisors write and everybody reads
- `memory`: for tests and simulations
"""
