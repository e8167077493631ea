"""What exists: one declaration per kind, and everything that follows from it.

A kind's Struct and its declaration give its validation, defaults, JSON schema, CLI columns, describe
sections, state and outcome, verbs and documentation. Pure: no I/O, no clock, no randomness. Everything
may import this package; it imports only `msgspec`, and PyYAML inside `yaml` and `yaml_events`.

- `meta`, `kind`, `kinds`: the shape of every object, what a declaration holds, the registry
- `job`, `job_kind`, `job_rules`: the Structs of a Job, its declaration, the rules between its fields
- `queue`, `node`, `membership`, `account`: the other kinds, each with Structs, rules and declaration
- `task`, `elastic`: one start of one replica; the coordinator of an elastic job
- `columns`: cells of tables; `quantities`, `ranges`: numbers with units, index sets and maps
- `errors`, `paths`, `nearest`: errors of every layer, findings, the nearest name to a mistyped one
- `selectors`: label selectors, and what a label may be
- `codec`, `merge`: documents to Structs and back; unknown fields survive an update
- `status_rules`: values of a status; `job_text`, `queue_text`, `text`: objects and quantities for people
- `yaml`, `yaml_events`: files to documents with lines, objects to YAML
- `validate`, `admit`: a document against its types, and what may enter or change in the store
- `demand`: what a job needs at least; warnings about what cannot run
- `schema`: schemas for custom resources and editors

Light (every command loads them): the first eight lines but `job_rules`. The rest is imported where it is
needed.
"""
