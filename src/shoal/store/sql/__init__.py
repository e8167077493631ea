"""The Store in a SQL database: an SQLite file by default, Postgres for a server that several share.

- `store`: `open_sql` and the backend, which puts the parts below together
- `connect`: engines, what their errors mean, and retries while another process holds the database
- `schema`: the tables, and bringing a database up to date (`../migrations`)
- `transaction`: the view of the rules (a writing transaction) and of readers (a snapshot)
- `writer`: the thread that writes, and drops what has left the watch window
- `reserve`: room on the disk for cancelling and deleting
- `follow`: notices the writes of other processes

The only place of the store that imports SQLAlchemy, with `../migrations`.
"""

from shoal.store.backend import Window
from shoal.store.sql.store import SqlStore, open_sql

__all__ = ["SqlStore", "Window", "open_sql"]
