"""What outlives a task: events, attempts, usage, metric points, decisions and logs.

History is written once and only ever trimmed by age and size. Nothing is decided on entries and logs;
experiments decide on metric points.

- `base`: the Protocols and the rules that the contract suites (`shoal.testing.history`) check
- `recorder`: what controllers call; counts what repeats
- `sql`: entries and metric points in SQLite or Postgres, in a database of their own; `tables` its
  shape, `rows` an entry's columns, `batching` the thread that writes behind
- `segments`: a log's files, as supervisors write and everybody reads them; `_layout` their names
- `files`: the logs of all tasks, over folders of segments

Imports `objects`, `faults` and `clock`; `segments` nothing but the standard library.
"""
