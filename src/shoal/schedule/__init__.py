"""Who goes first and where: `decide(snapshot, policy, now) -> Plan`, pure and deterministic.

- `snapshot`: what the scheduler sees: rows of nodes, queues, jobs and what they hold
- `plan`: what it decides: steps with reason codes and numbers, and the writes that carry them out
- `decide`: the function; its stages are `give_back`, `fill` and `sequence`
- `wants`: what a job lacks; `quota`: what its queue may take; `room`: where it fits, over arrays
- `reclaim`: what elastic jobs of lower priority give up for it
- `reasons`: why it does not fit; `explain`: any code and its numbers in words

No I/O, no clock, no randomness but an injected seed. Imports `shoal.objects` and numpy alone.
"""
