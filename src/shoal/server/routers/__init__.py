"""The routes of the API, one file per subject. Thin: they translate between HTTP and the parts.

- `objects`: create, get, list, apply, update, delete, status; `watching`: watches as event streams
- `running`: logs, exec, tasks of a job; `telling`: events, attempts, explain, usage
- `platform`: leases, tokens, schemas, version and health
"""
