"""The Store in a SQL database: an SQLite file by default, Postgres for a server that several share.

- `store`: `open_sql` and the backend, which puts the parts below together
- `connect`, `failures`, `retry`: engines, what their errors mean, and the one way to wait
- `tables`, `schema`: what the database holds, and bringing it up to date (`../migrations`)
- `transaction`, `snapshot`: the rules' view of the database, and that of readers
- `writer`, `trim`, `follow`: the thread that writes, the window, other processes' writes

The only place of the store that imports SQLAlchemy, with `../migrations`.
"""

from shoal.store.backend import Window
from shoal.store.sql.store import SqlStore, open_sql

__all__ = ["SqlStore", "Window", "open_sql"]
