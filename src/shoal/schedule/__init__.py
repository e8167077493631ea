"""Who goes first and where: `decide(snapshot, policy, now) -> Plan`, pure and deterministic.

- `snapshot`: what the scheduler sees: rows of nodes, queues, jobs and what they hold
- `plan`: what it decides: steps with reason codes and numbers, and the writes that carry them out
- `decide`: the function; its stages are `give_back`, `fill` and `sequence`
- `wants`: what a job lacks; `quota`: what its queue may take; `room`: where it fits, over arrays
- `reclaim`: what elastic jobs of lower priority give up for it
- `reasons`: why it does not fit; `explain`: any code and its numbers in words

Parts over arrays, each complete by itself, of which `decide` is to be made:

- `shares`: what each queue of a tree may have, and what may be taken back from whom
- `placing`: where gangs fit, on nodes with topology and parts of GPUs
- `backfill`: when each waiting job starts, and who may start meanwhile
- `speed`: how fast a job learns at each size; `sizing`: which size each elastic job should have
- `allot`: dividing equal GPUs, as `sizing` and the policies of others in `baselines` do it

No I/O, no clock, no randomness but an injected seed. Imports `shoal.objects` and numpy alone.
"""
