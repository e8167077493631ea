"""What exists: one declaration per kind, and everything that follows from it.

A kind's Struct gives its validation, defaults, JSON schema, CLI columns and documentation. Pure: no
I/O, no clock, no randomness. Everything may import this package; it imports only `msgspec`, and
PyYAML inside `yaml` and `yaml_events`.

- `meta`, `job`, `queue`, `node`: the Structs of the kinds; `task`: one start of one replica
- `kinds`, `columns`: the registry: names, aliases, scope, status writers, tables
- `quantities`, `ranges`: numbers with units; index sets and maps
- `errors`: the errors that every layer raises and every client shows
- `selectors`: label selectors, and what a label may be
- `codec`, `merge`: documents to Structs and back; unknown fields survive an update
- `yaml`, `yaml_events`, `scalars`, `places`: files to documents with lines, objects to YAML
- `validate`, `wording`, `nearest`, `paths`: a document against its types, in words
- `rules`, `job_rules`, `role_rules`, `queue_rules`: what must hold between fields
- `queue_tree`, `standing`: queues beside each other; `levels`: those of the topology
- `demand`, `advice`: what a job needs at least; what is allowed and surely not meant
- `admit`, `update`: what may enter the store, and what may change there
- `schema`, `docstrings`, `reference`: schemas for custom resources and editors; the page of all fields

Light (every command loads them): the first six lines. The rest is imported where it is needed.
"""
