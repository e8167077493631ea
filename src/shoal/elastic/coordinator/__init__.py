"""The process that alone publishes views of a job; see `docs/design/elastic.md`.

One per job, light, without torch. What it decides is a pure state machine; around it sockets, timers,
and one record that is written by compare-and-set before anybody is told.
"""
