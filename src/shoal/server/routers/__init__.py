"""The routes of the API, one file per subject. Thin: they translate between HTTP and the parts.

- `objects`: create, get, list, apply, update, delete, status, watches
- `running`: logs, exec, tasks of a job; `history_routes`: events, attempts, explain, usage
- `elastic`: what an elastic job's own tasks ask: record, size, reports
- `accounts`: users, roles, tokens, audit events and metrics
- `platform`: leases, schemas, version and health
"""
