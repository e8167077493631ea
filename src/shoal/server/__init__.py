"""The server: puts the parts of Shoal together and lets clients at them.

`python -m shoal.server --home PATH` opens the store, serves the API, and runs the controllers against
the local cluster. Only `app` and what it includes know HTTP; only `parts` knows which implementation
stands behind each protocol. May import everything but `cli` and `testing`; is imported by the command
line's `offline` verbs alone.

- `__main__`, `process`: the process: one per home, started early, ended cleanly
- `parts`: which store, history, cluster and controllers there are, and how far they are up
- `app`, `routers/`, `services`: the routes, and what they use
- `serving`, `protocol`, `doors`, `envelope`, `problems`: connections, their bounds, and errors
- `peer`, `auth`, `tokens`, `authorise`: who calls, and what they may do
- `admission`: what every write passes on its way to the store
- `elastic`, `elastic_report`: what elastic jobs keep with the platform and tell it
- `listing`, `following`, `exec_stream`, `explaining`, `using`, `tasks`: the larger answers
- `threads`, `signals`: blocking calls off the event loop, and waking it
"""
