"""The process that alone publishes views of a job; see `docs/design/elastic-view.md`.

One per job, light, without torch. What it decides is a pure state machine; around it sockets, timers,
and one record that is written by compare-and-set before any message of it is sent.

- `record`                         what may never be forgotten
- `state`, `events`                what is known, what may happen
- `machine`, `turn`                one step and its effects: pure
- `arrivals`, `heard`, `changes`   connections; the handlers of messages; the next view
- `evidence`                       members that are lost, and that stay when not all reach each other
- `watching`                       heartbeats to this process, and sidecars that watch each other
- `messages`                       frames become events, or are refused
- `records`, `endpoint`, `keeper`  where the record is kept, and the thread that writes it
- `server`, `service`              sockets; the process and its reports

Must not know torch, nor anything of the worker but its messages.
"""

from __future__ import annotations

__all__: list[str] = []
