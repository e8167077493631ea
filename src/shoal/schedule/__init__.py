"""Who goes first and where: `decide(snapshot, policy, now) -> Plan`, pure and deterministic.

The decision, over rows that count tasks:

- `cycle`: one plan for the whole cluster, made of the parts below
- `shares`: what each queue of a tree may have, and what may be taken back from whom
- `placing`: where gangs fit, on nodes with topology and parts of GPUs
- `backfill`: when each waiting job starts, and who may start meanwhile
- `speed`: how fast a job learns at each size; `sizing`: which size each elastic job should have
- `allot`: dividing equal GPUs, as `sizing` and the policies of others in `baselines` do it

Around it, what a server sees and writes:

- `snapshot`: rows of nodes, queues, jobs and what they hold, with indices and devices
- `give_back`: what jobs give back anyhow; `posing`: the rest as rows of the decision; `held`: its tasks
- `carrying`: its steps as indices and devices again; `sequence`: writes in a safe order (`free`: what is
  free between them); `plan`: steps and writes
- `decide`: all of it; `record`: a decision as a file, made again
- `explain`: any code and its numbers in words; `taints`: which keep a task away

No I/O, no clock, no randomness but an injected seed. Imports `shoal.objects` and numpy alone.
"""
