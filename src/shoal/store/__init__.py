"""Where objects live: one Protocol, several implementations (memory, SQL, and Kubernetes elsewhere).

- `base`: the Protocol and the rules that the contract suite (`shoal.testing.store`) checks
- `rules`: the contract as pure decisions on documents, written once
- `authorise`: the least role for each verb and action
- `watch_cache`: watches, and the window they resume from
- `backend`, `transactional`: a Store over anything that has transactions, and its leases
- `memory`: a dict, for tests and simulations
- `sql`: SQLite by default, Postgres for a server that several people share; `migrations/` beside it

Knows kinds only through their registry; knows nothing of controllers, clusters or HTTP.
"""
