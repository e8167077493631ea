"""Where objects live: one Protocol, several homes (memory, SQL, and Kubernetes elsewhere).

- `base`: the Protocol and the rules that the contract suite (`shoal.testing.store`) checks
- `memory`: a dict, for tests and simulations
- `sql`: SQLite by default, Postgres for a server that several people share; `migrations/` beside it

Knows kinds only through their registry; knows nothing of controllers, clusters or HTTP.
"""
