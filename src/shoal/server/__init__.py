"""The server: puts the parts of Shoal together and lets clients at them.

`python -m shoal.server --home PATH` opens the store, serves the API, and runs the controllers against
the local cluster. Only `app` and what it includes know HTTP; only `components` knows which
implementation stands behind each protocol. May import everything but `cli` and `testing`; only the
command line's `offline` verbs import it.

- `__main__`, `process`: the process: one per home, started early, ended cleanly
- `components`: store, history, cluster and controllers; in which order they start; their readiness
- `app`, `routers/`, `services`: the routes, the parts that they use, and threads for blocking calls
- `listeners`, `serving`, `middleware`: connections, their bounds, and errors as answers
- `peer`, `auth`, `accounts`: the actor of a request, jobs' tokens, users and their tokens
- `elastic`: records, sizes and reports of elastic jobs
- `log_stream`, `reports`: the larger answers
- `event_recorder`: events of controllers, audit events
"""
