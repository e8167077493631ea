"""State from a peer while training goes on.

A joiner takes a snapshot of one step from its donor, then the gradients of each later step as they were
applied, and applies them itself, until it is level; then it is planned into a view.

- `donor`   the peer that gives: a listening thread, and what training hands it
- `join`    the joiner's side
"""
