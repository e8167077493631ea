"""Detects that a worker is gone, stopped, silent or stuck; evidence suspects, the coordinator decides.

A process of its own beside each worker: threads of the worker starve while C code holds the interpreter
lock. Standard library only; the sidecar's share imports neither this library's API nor torch.

- `guardian`             the worker's side: starts the sidecar, keeps it running, sends it what changes
- `progress`             what a worker shows its sidecar without a system call
- `sidecar`              the program; `sidecar_main` is its loop
- `findings`             what follows from how the worker looks (pure)
- `uplink`               the connection to the coordinator
- `detector`, `gossip`   how a silent machine is found: beats in a star, or members watching each other
- `swim/`                the protocol of the latter
"""
