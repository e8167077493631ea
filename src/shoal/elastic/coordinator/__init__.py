"""The process that alone publishes views of a job; see `docs/design/elastic-view.md`.

One per job, light, without torch. What it decides is a pure state machine; around it sockets, timers,
and one record that is written by compare-and-set before anybody is told.

- `record`                         what may never be forgotten
- `state`, `events`, `effects`     what is known, what may happen, what is done
- `machine`, `turn`                one step: pure
- `arrivals`, `heard`, `changes`   who comes and goes; what they say; which view follows
- `evidence`, `partition`          who is counted lost; who stays when members cannot reach each other
- `watching`                       who beats to this process, and who is watched by others
- `messages`                       frames become events, or are refused
- `records`, `endpoint`, `keeper`  where the record is kept, and the thread that writes it
- `server`, `service`, `reporting` sockets, the process, and numbers for people

Must not know torch, nor anything of the worker but its messages.
"""

from __future__ import annotations

__all__: list[str] = []
