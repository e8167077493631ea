"""Where objects live: one Protocol, several homes (memory, SQL, and Kubernetes elsewhere).

- `base`: the Protocol and the rules that the contract suite (`shoal.testing.store`) checks
- `rules`, `document`, `versions`, `leasing`: the contract as pure decisions, written once
- `feed`: watches, and the window they resume from
- `backend`, `transactional`: a Store over anything that has transactions
- `memory`: a dict, for tests and simulations
- `sql`: SQLite by default, Postgres for a server that several people share; `migrations/` beside it

Knows kinds only through their registry; knows nothing of controllers, clusters or HTTP.
"""
