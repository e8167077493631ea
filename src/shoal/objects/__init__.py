"""What exists: one declaration per kind, and everything that follows from it.

A kind's Struct gives its validation, defaults, JSON schema, CLI columns and documentation. Pure: no
I/O, no clock, no randomness. Everything may import this package; it imports only `msgspec`, and
PyYAML inside `yaml.py`.

- `meta`, `job`, `queue`, `node`: the Structs of the kinds; `task`: one start of one replica
- `kinds`: the registry: names, aliases, scope, columns
- `codec`: bytes to Structs and back; unknown fields survive an update
- `quantities`, `ranges`: numbers with units; index sets and maps
- `errors`: the errors that every layer raises and every client shows
- `validate`, `yaml`, `schema`, `defaults`, `admit`: from a person's text to an admissible object
- `selectors`: label selectors
"""
