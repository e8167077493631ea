"""Who goes first and where: `decide(snapshot, policy, now) -> Plan`, pure and deterministic.

- `snapshot`: what the scheduler sees: arrays over nodes, queues, jobs and the slots they hold
- `plan`: what it decides: steps with reason codes and the numbers behind them
- `decide`: the function, and its stages beside it
- `explain`: a step's reason in words

No I/O, no clock, no randomness but an injected seed. Imports `shoal.objects` and numpy alone.
"""
