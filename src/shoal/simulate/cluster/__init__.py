"""A cluster in virtual time around the whole decision: what it plans is done, and checked as it is done.

What the planner says is not taken on trust: each step is done to rows of the same kind that it read,
by books kept apart from its own, and one that breaks a rule is refused with a sentence.

- `world`: the rows, what happens to them, and the plan applied to them
- `held`: what is in use: amounts, thousandths of GPUs, shared amounts; `queues`: and by whom
- `rules`: what a step must not do
- `engine`: events in their order, a decision after each; `work`: what a job has to do, and how fast;
  `progress`: how far it is; `faults`: nodes that are lost; `record`: what came of it
- `kueue`, `kai`: the loads that those measure themselves with; `full`: a large cluster at work
- `broken`: how a breach is told
"""
